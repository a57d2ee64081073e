// Inside of PrefixTree; see prefix_tree.h. Split over prefix_tree.cc (public operations),
// prefix_nodes.cc (nodes and their counts) and prefix_pins.cc (pins, check).
#pragma once

#include <queue>
#include <string>

#include "kv/prefix_tree.h"

namespace zerohop::kv {

inline constexpr NodeId kNoNode = 0xffffffffU;
inline constexpr std::uint32_t kNoIndex = 0xffffffffU;

// Rolling hash of a prefix, only to recognise evicted blocks: a collision costs a little accuracy.
inline std::uint64_t roll(std::uint64_t hash, Token token) {
    std::uint64_t h = (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15ULL;
    return h ^ (h >> 29);
}

struct PrefixTree::Impl {
    struct Node {
        std::vector<Token> label;
        NodeId parent = kNoNode, first_child = kNoNode, next = kNoNode, prev = kNoNode;
        std::uint32_t start = 0;
        std::uint32_t through = 0, full = 0;
        std::uint32_t running = 0;             // running entries that end here
        PinId own_pin = 0;                     // the pin that ends here
        std::uint32_t pins = 0;                // pins here and below
        std::uint32_t first_entry = kNoIndex;  // entries that end here
        std::uint32_t hits = 0;                // requests that came through it after the first
        std::uint64_t stamp = 0;               // blocks of traffic at the last request
        std::uint64_t hash_start = 0;          // rolled over everything above
        std::uint64_t owner = 0;
        bool short_tail = false;
        bool listed = false;  // in eviction, under `cls` and `listed_stamp`
        std::uint64_t listed_stamp = 0;
        LeafClass cls = LeafClass::kOnce;
        std::uint32_t end() const { return start + static_cast<std::uint32_t>(label.size()); }
    };
    struct Entry {
        std::uint32_t generation = 1;
        NodeId end = kNoNode;  // kNoNode: free
        std::uint32_t length = 0, computed = 0;
        std::uint32_t next = kNoIndex, prev = kNoIndex;  // in the node's list
        std::uint32_t incomplete_at = kNoIndex;          // place in `incomplete`
        std::uint64_t tag = 0;
        bool running = false;
    };
    struct Pin {
        NodeId node = kNoNode;
        MonoNs until = 0;
    };
    struct ChildHash {
        std::size_t operator()(std::uint64_t k) const noexcept {
            k = (k ^ (k >> 32)) * 0xD6E8FEB86659FD93ULL;
            return k ^ (k >> 32);
        }
    };

    explicit Impl(const TreeConfig& c)
        : config(c), eviction(c.capacity_tokens / kBlockTokens, c.adaptive) {}

    TreeConfig config;
    Eviction eviction;
    std::vector<Node> nodes;
    std::vector<NodeId> free_nodes;
    std::vector<Entry> entries;
    std::vector<std::uint32_t> free_entries;
    std::vector<std::uint32_t> incomplete;
    std::unordered_map<Namespace, NodeId, NamespaceHash> roots;
    std::unordered_map<NodeId, Namespace> root_names;
    std::unordered_map<std::uint64_t, NodeId, ChildHash> children;  // (parent, first token)
    std::unordered_map<PinId, Pin> pins;
    std::priority_queue<std::pair<MonoNs, PinId>, std::vector<std::pair<MonoNs, PinId>>,
                        std::greater<>>
        pin_order;
    std::unordered_map<std::uint64_t, std::uint64_t> pinned_by_owner;
    PinId next_pin = 1;
    std::uint64_t clock = 0;  // blocks of traffic
    TreeCounters count;

    // prefix_nodes.cc
    static std::uint64_t child_key(NodeId parent, Token t) {
        return (std::uint64_t{parent} << 32) | static_cast<std::uint32_t>(t);
    }
    NodeId child(NodeId parent, Token t) const;
    NodeId new_node(NodeId parent, std::uint32_t start, std::uint64_t hash_start,
                    std::span<const Token> label);
    void link_child(NodeId parent, NodeId node);
    void unlink_child(NodeId node);
    void remove_node(NodeId node);                   // childless, nobody through it
    NodeId split(NodeId node, std::uint32_t depth);  // returns the new upper part
    bool can_merge_up(NodeId node) const;
    void merge_up(NodeId node);  // takes the parent's label into `node`
    std::uint64_t hash_at(NodeId node, std::uint32_t depth) const;
    bool passes(const Entry& e, NodeId node) const;
    void refresh(NodeId node);  // (un)list it as evictable
    LeafClass class_of(const Node& n) const;
    void list_entry(std::uint32_t index, NodeId node);
    void unlist_entry(std::uint32_t index);
    void note_incomplete(std::uint32_t index);
    std::uint32_t new_entry();
    void free_entry(std::uint32_t index);
    Entry* find(EntryId id);
    const Entry* find(EntryId id) const;
    EntryId id_of(std::uint32_t index) const {
        return (EntryId{entries[index].generation} << 32) | index;
    }

    // prefix_tree.cc
    NodeId root_of(const Namespace& ns);
    NodeId descend(NodeId from, std::span<const Token> tokens, std::uint32_t& depth);
    NodeId grow(NodeId from, std::span<const Token> tokens, std::uint32_t depth, bool fresh_prompt);
    std::uint32_t ghosts_of(NodeId from, std::span<const Token> tokens, std::uint32_t depth);
    void touch_path(NodeId end, std::uint32_t known);
    void stamp_path(NodeId end);
    void count_up(NodeId node, NodeId stop, std::uint32_t computed, int by);
    void retreat(std::uint32_t index, std::uint32_t length);
    void cut(NodeId node, std::uint32_t depth);
    void mark_evicted(NodeId node, std::uint32_t from);
    void drop(std::uint32_t index);
    NodeId node_at(NodeId end, std::uint32_t depth) const;  // on the way up: holds token depth - 1

    // prefix_pins.cc
    void lose_pin(NodeId node);
    void order_pin(PinId pin, MonoNs until);
    void add_pins(NodeId node, int by);
    std::uint64_t unpinned_above(NodeId node) const;
};

}  // namespace zerohop::kv
