// Nodes, their links and counts. Invariant kept by every function here: for each node, `through`
// and `full` are what the entries' ends and `computed` say, and `children` maps first tokens to
// nodes.
#include <algorithm>

#include "base/check.h"
#include "kv/prefix_tree_impl.h"

namespace zerohop::kv {

NodeId PrefixTree::Impl::child(NodeId parent, Token t) const {
    const auto it = children.find(child_key(parent, t));
    return it == children.end() ? kNoNode : it->second;
}

NodeId PrefixTree::Impl::new_node(NodeId parent, std::uint32_t start, std::uint64_t hash_start,
                                  std::span<const Token> label) {
    NodeId id;
    if (free_nodes.empty()) {
        id = static_cast<NodeId>(nodes.size());
        nodes.emplace_back();
    } else {
        id = free_nodes.back();
        free_nodes.pop_back();
        nodes[id] = Node{};
    }
    Node& n = nodes[id];
    n.start = start;
    n.hash_start = hash_start;
    n.label.assign(label.begin(), label.end());
    n.stamp = clock;
    if (parent != kNoNode) {
        n.owner = nodes[parent].owner;
        link_child(parent, id);
    }
    ++count.nodes;
    return id;
}

void PrefixTree::Impl::link_child(NodeId parent, NodeId node) {
    Node& p = nodes[parent];
    Node& n = nodes[node];
    n.parent = parent;
    n.prev = kNoNode;
    n.next = p.first_child;
    if (n.next != kNoNode) nodes[n.next].prev = node;
    p.first_child = node;
    children[child_key(parent, n.label.front())] = node;
}

void PrefixTree::Impl::unlink_child(NodeId node) {
    Node& n = nodes[node];
    children.erase(child_key(n.parent, n.label.front()));
    if (n.prev != kNoNode)
        nodes[n.prev].next = n.next;
    else
        nodes[n.parent].first_child = n.next;
    if (n.next != kNoNode) nodes[n.next].prev = n.prev;
    n.next = n.prev = kNoNode;
}

void PrefixTree::Impl::remove_node(NodeId node) {
    Node& n = nodes[node];
    ZH_CHECK(n.through == 0 && n.first_child == kNoNode && n.first_entry == kNoIndex);
    if (n.own_pin != 0) lose_pin(node);
    refresh(node);
    count.used_tokens -= n.label.size();
    --count.nodes;
    const NodeId parent = n.parent;
    if (parent == kNoNode) {
        const auto it = root_names.find(node);
        roots.erase(it->second);
        root_names.erase(it);
    } else {
        unlink_child(node);
    }
    nodes[node] = Node{};
    free_nodes.push_back(node);
    if (parent != kNoNode && nodes[parent].through > 0) refresh(parent);
}

std::uint64_t PrefixTree::Impl::hash_at(NodeId node, std::uint32_t depth) const {
    const Node& n = nodes[node];
    std::uint64_t h = n.hash_start;
    for (std::uint32_t i = 0; i < depth - n.start; ++i) h = roll(h, n.label[i]);
    return h;
}

bool PrefixTree::Impl::passes(const Entry& e, NodeId node) const {
    NodeId at = e.end;
    while (at != node && nodes[at].start > nodes[node].start) at = nodes[at].parent;
    return at == node;
}

NodeId PrefixTree::Impl::split(NodeId lower, std::uint32_t depth) {
    const std::uint32_t keep = depth - nodes[lower].start;
    ZH_CHECK(keep > 0 && keep < nodes[lower].label.size());
    const NodeId parent = nodes[lower].parent;
    const std::uint64_t middle_hash = hash_at(lower, depth);
    std::uint32_t full = nodes[lower].full;
    for (const std::uint32_t i : incomplete) {
        const Entry& e = entries[i];
        if (e.computed >= depth && e.computed < nodes[lower].end() && passes(e, lower)) ++full;
    }
    unlink_child(lower);
    const std::vector<Token> upper_label(nodes[lower].label.begin(),
                                         nodes[lower].label.begin() + keep);
    const NodeId upper = new_node(parent, nodes[lower].start, nodes[lower].hash_start, upper_label);
    Node& u = nodes[upper];
    Node& l = nodes[lower];
    u.through = l.through;
    u.full = full;
    u.pins = l.pins;
    u.hits = l.hits;
    u.stamp = l.stamp;
    u.short_tail = l.short_tail;
    l.label.erase(l.label.begin(), l.label.begin() + keep);
    l.start = depth;
    l.hash_start = middle_hash;
    link_child(upper, lower);
    return upper;
}

// Nodes of one path with the same recency and class are one node again: splits by requests long
// gone would otherwise stay as long as the prefix does.
bool PrefixTree::Impl::can_merge_up(NodeId node) const {
    const Node& n = nodes[node];
    if (n.parent == kNoNode || n.prev != kNoNode || n.next != kNoNode) return false;
    const Node& p = nodes[n.parent];
    return p.parent != kNoNode && p.first_entry == kNoIndex && p.own_pin == 0 &&
           p.stamp == n.stamp && class_of(p) == class_of(n);
}

void PrefixTree::Impl::merge_up(NodeId node) {
    const NodeId middle = nodes[node].parent;
    const NodeId parent = nodes[middle].parent;
    unlink_child(node);
    unlink_child(middle);
    Node& m = nodes[middle];
    Node& n = nodes[node];
    n.label.insert(n.label.begin(), m.label.begin(), m.label.end());
    n.start = m.start;
    n.hash_start = m.hash_start;
    link_child(parent, node);
    m = Node{};
    free_nodes.push_back(middle);
    --count.nodes;
}

LeafClass PrefixTree::Impl::class_of(const Node& n) const {
    if (n.hits > 0) return LeafClass::kReused;
    return n.short_tail ? LeafClass::kShortTail : LeafClass::kOnce;
}

void PrefixTree::Impl::refresh(NodeId node) {
    Node& n = nodes[node];
    if (n.listed) eviction.erase(node, n.cls, n.listed_stamp);
    n.listed = n.parent != kNoNode && n.through > 0 && n.first_child == kNoNode && n.pins == 0 &&
               n.running == 0;
    if (!n.listed) return;
    n.cls = class_of(n);
    n.listed_stamp = n.stamp;
    eviction.insert(node, n.cls, n.stamp);
}

void PrefixTree::Impl::list_entry(std::uint32_t index, NodeId node) {
    Entry& e = entries[index];
    Node& n = nodes[node];
    e.end = node;
    e.prev = kNoIndex;
    e.next = n.first_entry;
    if (e.next != kNoIndex) entries[e.next].prev = index;
    n.first_entry = index;
    if (e.running) ++n.running;
}

void PrefixTree::Impl::unlist_entry(std::uint32_t index) {
    Entry& e = entries[index];
    Node& n = nodes[e.end];
    if (e.prev != kNoIndex)
        entries[e.prev].next = e.next;
    else
        n.first_entry = e.next;
    if (e.next != kNoIndex) entries[e.next].prev = e.prev;
    e.next = e.prev = kNoIndex;
    if (e.running) --n.running;
}

void PrefixTree::Impl::note_incomplete(std::uint32_t index) {
    Entry& e = entries[index];
    const bool want = e.computed < e.length;
    if (want == (e.incomplete_at != kNoIndex)) return;
    if (want) {
        e.incomplete_at = static_cast<std::uint32_t>(incomplete.size());
        incomplete.push_back(index);
        return;
    }
    const std::uint32_t last = incomplete.back();
    incomplete[e.incomplete_at] = last;
    entries[last].incomplete_at = e.incomplete_at;
    incomplete.pop_back();
    e.incomplete_at = kNoIndex;
}

std::uint32_t PrefixTree::Impl::new_entry() {
    ++count.entries;
    if (!free_entries.empty()) {
        const std::uint32_t index = free_entries.back();
        free_entries.pop_back();
        return index;
    }
    entries.emplace_back();
    return static_cast<std::uint32_t>(entries.size() - 1);
}

void PrefixTree::Impl::free_entry(std::uint32_t index) {
    Entry& e = entries[index];
    e.computed = e.length = 0;
    note_incomplete(index);
    const std::uint32_t generation = e.generation + 1;
    e = Entry{};
    e.generation = generation == 0 ? 1 : generation;
    free_entries.push_back(index);
    --count.entries;
}

const PrefixTree::Impl::Entry* PrefixTree::Impl::find(EntryId id) const {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= entries.size()) return nullptr;
    const Entry& e = entries[index];
    return e.end != kNoNode && e.generation == (id >> 32) ? &e : nullptr;
}

PrefixTree::Impl::Entry* PrefixTree::Impl::find(EntryId id) {
    return const_cast<Entry*>(static_cast<const Impl*>(this)->find(id));
}

}  // namespace zerohop::kv
