// Public operations of the prefix tree. The order inside each: split or create nodes first, then
// move the entry and its counts, then remove what nobody passes any more, then refresh
// evictability.
#include "kv/prefix_tree.h"

#include <algorithm>

#include "base/check.h"
#include "kv/prefix_tree_impl.h"

namespace zerohop::kv {
namespace {

// A new end is "short" when it is at most this share of the whole prompt.
constexpr std::uint32_t kShortTailDivisor = 8;

std::uint32_t common(std::span<const Token> a, std::span<const Token> b) {
    const std::size_t n = std::min(a.size(), b.size());
    return static_cast<std::uint32_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
        a.begin());
}

}  // namespace

PrefixTree::PrefixTree(const TreeConfig& config) : impl_(std::make_unique<Impl>(config)) {
    impl_->count.capacity_tokens = config.capacity_tokens;
}
PrefixTree::~PrefixTree() = default;

Match PrefixTree::lookup(const Namespace& ns, std::span<const Token> tokens) const {
    const Impl& t = *impl_;
    Match match;
    const auto root = t.roots.find(ns);
    if (root == t.roots.end()) return match;
    NodeId node = match.node = root->second;
    NodeId deepest = node;
    std::uint32_t depth = 0;
    bool complete = true;
    while (depth < tokens.size()) {
        node = t.child(node, tokens[depth]);
        if (node == kNoNode) break;
        const Impl::Node& n = t.nodes[node];
        depth += common(n.label, tokens.subspan(depth));
        deepest = node;
        if (complete && n.full > 0) {
            match.cached = depth;
            match.node = node;
        } else if (complete) {
            complete = false;
            for (const std::uint32_t i : t.incomplete) {
                const Impl::Entry& e = t.entries[i];
                const std::uint32_t reach = std::min(e.computed, depth);
                if (reach <= match.cached || !t.passes(e, node)) continue;
                match.cached = reach;
                match.node = node;
            }
        }
        if (depth < n.end()) break;
    }
    match.promised = depth;
    if (match.cached == depth) return match;
    std::uint32_t furthest = 0;
    for (const std::uint32_t i : t.incomplete) {
        const Impl::Entry& e = t.entries[i];
        if (match.computing != 0 && e.computed <= furthest) continue;
        if (!t.passes(e, deepest)) continue;
        match.computing = t.id_of(i);
        furthest = e.computed;
    }
    return match;
}

NodeId PrefixTree::Impl::root_of(const Namespace& ns) {
    const auto it = roots.find(ns);
    if (it != roots.end()) return it->second;
    const NodeId root = new_node(kNoNode, 0, ns.lo, {});
    nodes[root].owner = ns.owner;
    roots.emplace(ns, root);
    root_names.emplace(root, ns);
    return root;
}

// Follows `tokens` from the end of `from` and splits so that the way ends at a node's end.
NodeId PrefixTree::Impl::descend(NodeId from, std::span<const Token> tokens, std::uint32_t& depth) {
    NodeId node = from;
    std::uint32_t used = 0;
    while (used < tokens.size()) {
        const NodeId next = child(node, tokens[used]);
        if (next == kNoNode) break;
        const std::uint32_t same = common(nodes[next].label, tokens.subspan(used));
        used += same;
        if (same < nodes[next].label.size()) {
            node = split(next, nodes[next].start + same);
            break;
        }
        node = next;
    }
    depth += used;
    return node;
}

// How far beyond `depth` the prompt runs through blocks that were evicted not long ago.
std::uint32_t PrefixTree::Impl::ghosts_of(NodeId from, std::span<const Token> tokens,
                                          std::uint32_t depth) {
    std::uint64_t hash = hash_at(from, depth);
    std::uint32_t reach = depth;
    for (auto at = depth; at < tokens.size();) {
        hash = roll(hash, tokens[at]);
        if (++at % kBlockTokens == 0 && eviction.missed(hash)) reach = at;
    }
    return reach;
}

NodeId PrefixTree::Impl::grow(NodeId from, std::span<const Token> tokens, std::uint32_t depth,
                              bool fresh_prompt) {
    const auto total = static_cast<std::uint32_t>(tokens.size());
    if (depth == total) return from;
    const bool short_tail = depth > 0 && (total - depth) * kShortTailDivisor <= total;
    const std::uint32_t known = fresh_prompt ? ghosts_of(from, tokens, depth) : depth;
    NodeId node = from;
    for (const std::uint32_t end : {known, total}) {
        if (end == depth) continue;
        const std::uint64_t hash = hash_at(node, depth);
        const NodeId next = new_node(node, depth, hash, tokens.subspan(depth, end - depth));
        refresh(node);
        node = next;
        nodes[node].short_tail = short_tail;
        nodes[node].hits = end == known ? 1 : 0;
        count.used_tokens += end - depth;
        depth = end;
    }
    return node;
}

void PrefixTree::Impl::stamp_path(NodeId end) {
    for (NodeId n = end; n != kNoNode; n = nodes[n].parent) nodes[n].stamp = clock;
    for (NodeId n = end; n != kNoNode; n = nodes[n].parent)
        while (can_merge_up(n)) merge_up(n);
}

void PrefixTree::Impl::touch_path(NodeId end, std::uint32_t known) {
    for (NodeId n = end; n != kNoNode; n = nodes[n].parent)
        if (nodes[n].end() <= known) ++nodes[n].hits;
    stamp_path(end);
}

void PrefixTree::Impl::count_up(NodeId node, NodeId stop, std::uint32_t computed, int by) {
    const auto step = static_cast<std::uint32_t>(by);
    for (NodeId n = node; n != stop; n = nodes[n].parent) {
        nodes[n].through += step;
        if (computed >= nodes[n].end()) nodes[n].full += step;
    }
}

EntryId PrefixTree::open(const Namespace& ns, std::span<const Token> tokens, std::uint32_t computed,
                         std::uint64_t tag) {
    Impl& t = *impl_;
    ZH_CHECK(!tokens.empty() && computed <= tokens.size());
    std::uint32_t known = 0;
    NodeId end = t.descend(t.root_of(ns), tokens, known);
    end = t.grow(end, tokens, known, true);
    const std::uint32_t index = t.new_entry();
    Impl::Entry& e = t.entries[index];
    e.length = static_cast<std::uint32_t>(tokens.size());
    e.computed = computed;
    e.tag = tag;
    e.running = true;
    t.list_entry(index, end);
    t.count_up(end, kNoNode, computed, 1);
    t.note_incomplete(index);
    const std::uint64_t blocks = (tokens.size() + kBlockTokens - 1) / kBlockTokens;
    t.clock += blocks;
    t.touch_path(end, known);
    t.refresh(end);
    t.count.block_needs += tokens.size() / kBlockTokens;
    t.count.block_hits += computed / kBlockTokens;
    return t.id_of(index);
}

void PrefixTree::append(EntryId id, std::span<const Token> tokens) {
    Impl& t = *impl_;
    Impl::Entry* e = t.find(id);
    if (e == nullptr || tokens.empty()) return;
    ZH_CHECK(e->running);
    const auto added = static_cast<std::uint32_t>(tokens.size());
    Impl::Node& n = t.nodes[e->end];
    e->length += added;
    if (n.through == 1 && n.pins == 0) {  // only this entry: the label grows in place
        n.label.insert(n.label.end(), tokens.begin(), tokens.end());
        n.full = 0;
        t.count.used_tokens += added;
        t.note_incomplete(static_cast<std::uint32_t>(id));
        return;
    }
    const auto index = static_cast<std::uint32_t>(id);
    const NodeId from = e->end;
    std::uint32_t depth = 0;
    NodeId end = t.descend(from, tokens, depth);
    if (depth < added) {
        const std::span<const Token> rest = tokens.subspan(depth);
        const NodeId next =
            t.new_node(end, t.nodes[end].end(), t.hash_at(end, t.nodes[end].end()), rest);
        t.refresh(end);
        t.count.used_tokens += rest.size();
        end = next;
    }
    t.unlist_entry(index);
    t.list_entry(index, end);
    t.count_up(end, from, t.entries[index].computed, 1);
    t.note_incomplete(index);
    t.refresh(from);
    t.refresh(end);
}

void PrefixTree::advance(EntryId id, std::uint32_t computed) {
    Impl& t = *impl_;
    Impl::Entry* e = t.find(id);
    if (e == nullptr) return;
    computed = std::min(computed, e->length);
    if (computed <= e->computed) return;
    for (NodeId n = e->end; t.nodes[n].end() > e->computed; n = t.nodes[n].parent)
        if (t.nodes[n].end() <= computed) ++t.nodes[n].full;
    e->computed = computed;
    t.note_incomplete(static_cast<std::uint32_t>(id));
}

NodeId PrefixTree::Impl::node_at(NodeId end, std::uint32_t depth) const {
    NodeId n = end;
    while (nodes[n].start >= depth && nodes[n].parent != kNoNode) n = nodes[n].parent;
    return n;
}

// Only one idle or running entry is here: its label ends earlier.
void PrefixTree::Impl::cut(NodeId node, std::uint32_t depth) {
    Node& n = nodes[node];
    if (n.own_pin != 0) lose_pin(node);
    count.used_tokens -= n.end() - depth;
    n.label.resize(depth - n.start);
}

void PrefixTree::Impl::retreat(std::uint32_t index, std::uint32_t length) {
    const NodeId old = entries[index].end;
    NodeId target = node_at(old, length);
    if (length < nodes[target].end() && nodes[target].through > 1) target = split(target, length);
    unlist_entry(index);
    refresh(old);
    count_up(old, target, entries[index].computed, -1);
    for (NodeId n = old; n != target;) {
        const NodeId parent = nodes[n].parent;
        if (nodes[n].through == 0) remove_node(n);
        n = parent;
    }
    Entry& e = entries[index];
    e.length = length;
    e.computed = std::min(e.computed, length);
    list_entry(index, target);
    if (length < nodes[target].end()) {
        cut(target, length);
        nodes[target].full = e.computed >= length ? 1 : 0;
    }
    note_incomplete(index);
    refresh(target);
}

void PrefixTree::Impl::drop(std::uint32_t index) {
    const NodeId old = entries[index].end;
    unlist_entry(index);
    refresh(old);
    count_up(old, kNoNode, entries[index].computed, -1);
    for (NodeId n = old; n != kNoNode;) {
        const NodeId parent = nodes[n].parent;
        if (nodes[n].through == 0) remove_node(n);
        n = parent;
    }
    if (nodes[old].through > 0) refresh(old);
    free_entry(index);
}

std::uint32_t PrefixTree::close(EntryId id) {
    Impl& t = *impl_;
    Impl::Entry* e = t.find(id);
    if (e == nullptr) return 0;
    const auto index = static_cast<std::uint32_t>(id);
    if (e->computed == 0) {
        t.drop(index);
        return 0;
    }
    if (e->computed < e->length) t.retreat(index, e->computed);
    Impl::Entry& now = t.entries[index];
    if (now.running) {
        now.running = false;
        --t.nodes[now.end].running;
        t.stamp_path(now.end);
    }
    t.refresh(now.end);
    return now.length;
}

void PrefixTree::drop(EntryId id) {
    if (impl_->find(id) != nullptr) impl_->drop(static_cast<std::uint32_t>(id));
}

bool PrefixTree::alive(EntryId id) const { return impl_->find(id) != nullptr; }

EntryInfo PrefixTree::info(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return {};
    return {.length = e->length, .computed = e->computed, .running = e->running, .tag = e->tag};
}

std::uint32_t PrefixTree::unique_tail(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return 0;
    const auto self = static_cast<std::uint32_t>(id);
    std::uint32_t shared = 0;  // how deep some other entry has computed along this one's way
    for (NodeId n = e->end; n != kNoNode && shared == 0; n = impl_->nodes[n].parent) {
        const Impl::Node& node = impl_->nodes[n];
        if (node.full > (e->computed >= node.end() ? 1U : 0U)) shared = node.end();
        if (shared != 0 || node.parent == kNoNode) break;
        for (const std::uint32_t i : impl_->incomplete) {
            const Impl::Entry& other = impl_->entries[i];
            const std::uint32_t reach = std::min(other.computed, node.end());
            if (i != self && reach > node.start && reach > shared && impl_->passes(other, n))
                shared = reach;
        }
    }
    return e->computed > shared ? e->computed - shared : 0;
}

std::uint32_t PrefixTree::sole_tail(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return 0;
    NodeId n = e->end;
    while (impl_->nodes[n].through == 1 && impl_->nodes[n].parent != kNoNode)
        n = impl_->nodes[n].parent;
    return e->length - impl_->nodes[n].end();
}

bool PrefixTree::pinned(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return false;
    for (NodeId n = e->end; n != kNoNode && impl_->nodes[n].through == 1;
         n = impl_->nodes[n].parent)
        if (impl_->nodes[n].pins > 0) return true;
    return false;
}

double PrefixTree::heat(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return 0;
    const Impl::Node& n = impl_->nodes[e->end];
    return static_cast<double>(n.stamp) +
           static_cast<double>(impl_->eviction.bonus(impl_->class_of(n)));
}

EntryId PrefixTree::coldest() const {
    const auto victim = impl_->eviction.victim();
    return victim ? impl_->id_of(impl_->nodes[*victim].first_entry) : 0;
}

std::vector<Token> PrefixTree::tokens_of(EntryId id) const {
    const Impl::Entry* e = impl_->find(id);
    if (e == nullptr) return {};
    std::vector<Token> out(e->length);
    for (NodeId n = e->end; n != kNoNode; n = impl_->nodes[n].parent) {
        const Impl::Node& node = impl_->nodes[n];
        std::ranges::copy(node.label, out.begin() + node.start);
    }
    return out;
}

void PrefixTree::holders(const Match& match, std::uint32_t depth, std::size_t limit,
                         std::vector<EntryId>& out) const {
    const Impl& t = *impl_;
    if (depth == 0 || depth > match.cached) return;
    std::vector<NodeId> todo{t.node_at(match.node, depth)};
    std::size_t visits = 4 * limit;  // a node without a computed entry below it is rare
    for (std::size_t at = 0; at < todo.size() && visits-- > 0; ++at) {
        const Impl::Node& n = t.nodes[todo[at]];
        for (std::uint32_t i = n.first_entry; i != kNoIndex; i = t.entries[i].next) {
            if (t.entries[i].computed < depth) continue;
            out.push_back(t.id_of(i));
            if (out.size() >= limit) return;
        }
        for (NodeId c = n.first_child; c != kNoNode && todo.size() < 4 * limit; c = t.nodes[c].next)
            todo.push_back(c);
    }
}

void PrefixTree::prefixes(const Match& match, std::vector<EntryId>& out) const {
    const Impl& t = *impl_;
    if (match.cached == 0) return;
    for (NodeId n = match.node; n != kNoNode; n = t.nodes[n].parent)
        for (std::uint32_t i = t.nodes[n].first_entry; i != kNoIndex; i = t.entries[i].next) {
            const Impl::Entry& e = t.entries[i];
            if (!e.running && e.length <= match.cached) out.push_back(t.id_of(i));
        }
}

bool PrefixTree::make_room(std::uint64_t tokens, std::vector<Trim>& out) {
    Impl& t = *impl_;
    while (t.count.used_tokens + tokens > t.config.capacity_tokens)
        if (!evict(t.count.used_tokens + tokens - t.config.capacity_tokens, out)) return false;
    return true;
}

// So that whoever asks for these blocks again is recognised; the deepest is forgotten first.
void PrefixTree::Impl::mark_evicted(NodeId node, std::uint32_t from) {
    const Node& n = nodes[node];
    std::uint64_t hash = n.hash_start;
    std::vector<std::uint64_t> marks;
    for (std::uint32_t depth = n.start; depth < n.end();) {
        hash = roll(hash, n.label[depth - n.start]);
        if (++depth > from && depth % kBlockTokens == 0) marks.push_back(hash);
    }
    for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) eviction.evicted(*mark, n.cls);
}

bool PrefixTree::evict(std::uint64_t tokens, std::vector<Trim>& out) {
    Impl& t = *impl_;
    const auto victim = t.eviction.victim();
    if (!victim) return false;
    Impl::Node& n = t.nodes[*victim];
    while (t.entries[n.first_entry].next != kNoIndex) {  // twins hold nothing of their own
        const std::uint32_t twin = t.entries[n.first_entry].next;
        out.push_back({.entry = t.id_of(twin), .length = 0, .tag = t.entries[twin].tag});
        t.drop(twin);
    }
    const std::uint32_t index = n.first_entry;
    const std::uint32_t end = n.end();
    const auto most =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(tokens, 1, end - n.start));
    const std::uint32_t length = std::max(n.start, (end - most) / kBlockTokens * kBlockTokens);
    t.mark_evicted(*victim, length);
    t.count.evicted_blocks += (end + kBlockTokens - 1) / kBlockTokens - length / kBlockTokens;
    const EntryId id = t.id_of(index);
    const Impl::Node& parent = t.nodes[n.parent];
    // At the end of its own tokens the entry stays only if nobody else holds what is above.
    const bool keep = length > n.start || (length > 0 && parent.through == 1);
    out.push_back({.entry = id, .length = keep ? length : 0, .tag = t.entries[index].tag});
    if (keep)
        t.retreat(index, length);
    else
        t.drop(index);
    return true;
}

std::uint64_t PrefixTree::running_tokens() const {
    const Impl& t = *impl_;
    std::vector<bool> counted(t.nodes.size());
    std::uint64_t tokens = 0;
    for (const Impl::Entry& e : t.entries) {
        if (!e.running) continue;
        for (NodeId n = e.end; n != kNoNode && !counted[n]; n = t.nodes[n].parent) {
            counted[n] = true;
            tokens += t.nodes[n].label.size();
        }
    }
    return tokens;
}

TreeCounters PrefixTree::counters() const { return impl_->count; }

std::int64_t PrefixTree::eviction_bonus(LeafClass cls) const { return impl_->eviction.bonus(cls); }

}  // namespace zerohop::kv
