// Pins and the self-check. A node's tokens are charged to its owner while pins > 0.
#include <algorithm>

#include "base/check.h"
#include "kv/prefix_tree_impl.h"

namespace zerohop::kv {

std::uint64_t PrefixTree::Impl::unpinned_above(NodeId node) const {
    std::uint64_t tokens = 0;
    for (NodeId n = node; n != kNoNode && nodes[n].pins == 0; n = nodes[n].parent)
        tokens += nodes[n].label.size();
    return tokens;
}

// Charges what becomes pinned, or gives back what no longer is.
void PrefixTree::Impl::add_pins(NodeId node, int by) {
    const auto step = static_cast<std::uint32_t>(by);
    const std::uint64_t charge = by > 0 ? unpinned_above(node) : 0;
    for (NodeId n = node; n != kNoNode; n = nodes[n].parent) nodes[n].pins += step;
    const std::uint64_t refund = by < 0 ? unpinned_above(node) : 0;
    std::uint64_t& owned = pinned_by_owner[nodes[node].owner];
    owned = owned + charge - refund;
    count.pinned_tokens = count.pinned_tokens + charge - refund;
    if (owned == 0) pinned_by_owner.erase(nodes[node].owner);
    for (NodeId n = node; n != kNoNode; n = nodes[n].parent) refresh(n);
}

void PrefixTree::Impl::lose_pin(NodeId node) {
    pins.erase(nodes[node].own_pin);
    nodes[node].own_pin = 0;
    add_pins(node, -1);
    ++count.pins_lost;
}

Result<PinId> PrefixTree::pin(EntryId id, std::uint32_t length, MonoNs until) {
    Impl& t = *impl_;
    const Impl::Entry* e = t.find(id);
    if (e == nullptr) return fail(Code::kInternal, "kv", "the cache entry is gone");
    length = std::min(length, e->length);
    if (length == 0) return fail(Code::kInvalidRequest, "kv", "nothing to pin");
    NodeId node = t.node_at(e->end, length);
    const std::uint64_t owner = t.nodes[node].owner;
    // What a split at `length` would charge: the part of this node above it, and its ancestors.
    std::uint64_t charge = 0;
    if (t.nodes[node].pins == 0)
        charge = length - t.nodes[node].start + t.unpinned_above(t.nodes[node].parent);
    const auto owned = t.pinned_by_owner.find(owner);
    const std::uint64_t before = owned == t.pinned_by_owner.end() ? 0 : owned->second;
    const bool over_all = charge > 0 && t.count.pinned_tokens + charge > t.config.pin_total_tokens;
    if (before + charge > t.config.pin_cap_tokens || over_all) {
        ++t.count.pins_refused;
        return fail(Code::kRateLimited, "kv",
                    over_all ? "the limit of pinned cache tokens of all workspaces"
                             : "the workspace's limit of pinned cache tokens");
    }
    if (length < t.nodes[node].end()) node = t.split(node, length);
    if (const PinId held = t.nodes[node].own_pin; held != 0) {  // renewed, as each turn does
        MonoNs& known = t.pins.at(held).until;
        known = std::max(known, until);
        return held;
    }
    t.add_pins(node, 1);
    const PinId pin = t.nodes[node].own_pin = t.next_pin++;
    t.pins.emplace(pin, Impl::Pin{.node = node, .until = until});
    t.order_pin(pin, until);
    return pin;
}

void PrefixTree::unpin(PinId id) {
    Impl& t = *impl_;
    const auto it = t.pins.find(id);
    if (it == t.pins.end()) return;
    const NodeId node = it->second.node;
    t.pins.erase(it);
    t.nodes[node].own_pin = 0;
    t.add_pins(node, -1);
}

// pin_order may hold pins that are gone; it is rebuilt before they outnumber the living.
void PrefixTree::Impl::order_pin(PinId pin, MonoNs until) {
    pin_order.emplace(until, pin);
    if (pin_order.size() < 2 * pins.size() + 64) return;
    pin_order = {};
    for (const auto& [id, p] : pins) pin_order.emplace(p.until, id);
}

void PrefixTree::expire(MonoNs now) {
    auto& order = impl_->pin_order;
    while (!order.empty() && order.top().first <= now) {
        const PinId id = order.top().second;
        order.pop();
        const auto it = impl_->pins.find(id);
        if (it == impl_->pins.end()) continue;
        if (it->second.until > now)
            order.emplace(it->second.until, id);  // renewed since
        else
            unpin(id);
    }
}

PrefixTree::PinInfo PrefixTree::pin_of(EntryId id) const {
    const Impl& t = *impl_;
    const Impl::Entry* e = t.find(id);
    for (NodeId n = e == nullptr ? kNoNode : e->end; n != kNoNode; n = t.nodes[n].parent) {
        const auto pin = t.pins.find(t.nodes[n].own_pin);
        if (pin != t.pins.end()) return {.length = t.nodes[n].end(), .until = pin->second.until};
    }
    return {};
}

void PrefixTree::check() const {
    const Impl& t = *impl_;
    std::vector<std::uint32_t> through(t.nodes.size()), full(t.nodes.size()),
        running(t.nodes.size()), own(t.nodes.size());
    std::uint32_t alive = 0;
    for (std::uint32_t i = 0; i < t.entries.size(); ++i) {
        const Impl::Entry& e = t.entries[i];
        if (e.end == kNoNode) continue;
        ++alive;
        ZH_CHECK(e.length == t.nodes[e.end].end() && e.computed <= e.length && e.length > 0);
        ZH_CHECK(e.running || e.computed == e.length);
        ZH_CHECK((e.computed < e.length) == (e.incomplete_at != kNoIndex));
        if (e.incomplete_at != kNoIndex) ZH_CHECK(t.incomplete[e.incomplete_at] == i);
        running[e.end] += e.running ? 1 : 0;
        ++own[e.end];
        for (NodeId n = e.end; n != kNoNode; n = t.nodes[n].parent) {
            ++through[n];
            full[n] += e.computed >= t.nodes[n].end() ? 1 : 0;
        }
    }
    ZH_CHECK(alive == t.count.entries);
    std::vector<std::uint32_t> pins(t.nodes.size()), own_pins(t.nodes.size());
    for (const auto& [id, pin] : t.pins) {
        ++own_pins[pin.node];
        for (NodeId n = pin.node; n != kNoNode; n = t.nodes[n].parent) ++pins[n];
    }
    std::vector<NodeId> todo;
    for (const auto& [ns, root] : t.roots) todo.push_back(root);
    std::uint64_t tokens = 0, pinned = 0;
    std::uint32_t seen = 0;
    while (!todo.empty()) {
        const NodeId id = todo.back();
        todo.pop_back();
        ++seen;
        const Impl::Node& n = t.nodes[id];
        tokens += n.label.size();
        if (n.pins > 0) pinned += n.label.size();
        ZH_CHECK(n.through == through[id] && n.full == full[id] && n.running == running[id]);
        ZH_CHECK(n.through > 0 && n.pins == pins[id] && (n.own_pin != 0) == (own_pins[id] == 1));
        ZH_CHECK(n.first_child != kNoNode || own[id] == n.through);
        const bool evictable =
            n.parent != kNoNode && n.first_child == kNoNode && n.pins == 0 && n.running == 0;
        ZH_CHECK(n.listed == evictable);
        for (NodeId c = n.first_child; c != kNoNode; c = t.nodes[c].next) {
            const Impl::Node& k = t.nodes[c];
            ZH_CHECK(k.parent == id && k.start == n.end() && !k.label.empty());
            ZH_CHECK(t.child(id, k.label.front()) == c && k.hash_start == t.hash_at(id, n.end()));
            todo.push_back(c);
        }
    }
    ZH_CHECK(seen == t.count.nodes && t.children.size() == seen - t.roots.size());
    ZH_CHECK(tokens == t.count.used_tokens && pinned == t.count.pinned_tokens);
    std::uint64_t owned = 0;
    for (const auto& [owner, charge] : t.pinned_by_owner) owned += charge;
    ZH_CHECK(owned == pinned);
}

}  // namespace zerohop::kv
