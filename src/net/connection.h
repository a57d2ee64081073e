// Connection: one accepted socket: TLS handshake, protocol choice, moving bytes, time-outs,
// closing.
//
//     kHandshake --TLS done--> kOpen (session by ALPN)     kSniff --first bytes--> kOpen (by
//     preface) kOpen --session says kFlush, all sent--> kLinger --FIN, size or time--> kClosed any
//     --error, reset, time-out--> kClosed
//
// Lingering (RFC 9112 §9.6): our FIN goes out, what the client still sends is read and dropped, so
// that no reset destroys an answer it has not read yet. Owning thread: its worker's loop. Held by
// its worker until the turn of close() is over. Nothing throws.
#pragma once

#include <memory>
#include <string>

#include "net/io_loop.h"
#include "net/server_state.h"
#include "net/transport.h"
#include "wire/pace.h"
#include "wire/session.h"

namespace zerohop::net {

class Worker;

class Connection final : public std::enable_shared_from_this<Connection>,
                         public TurnEnd,
                         private Watcher,
                         private wire::SessionHost {
  public:
    // Takes fd and ssl (null: plain). `address_key` is given back to state.addresses at close.
    Connection(Worker& worker, ServerState& state, int fd, ssl_st* ssl, wire::Peer peer,
               std::string address_key);
    ~Connection() override;

    // All within a turn of the loop.
    void start();
    void tick(MonoNs now);
    void drain();
    void close();
    void drop(const char* why);  // close with a reset, counted and logged
    std::size_t buffered() const { return counted_; }

    void end_of_turn() override;  // writes, and acts on what the session wants

  private:
    enum class State { kHandshake, kSniff, kOpen, kLinger, kClosed };

    // wire::SessionHost
    Loop& loop() override;
    MonoNs now() override { return mono_now(); }
    void wake() override;
    void on_exchanges(int delta) override;

    void on_ready(std::uint32_t events) override;  // Watcher
    void arm_read();
    void arm_write();
    void continue_handshake();
    void read_some();
    void on_input(std::string_view bytes);
    void on_input_end(Io why);
    void sniff(std::string_view bytes);
    void open(bool h2);
    void flush();
    void begin_linger();
    void recount();
    bool is_taken_too_slowly(MonoNs now);

    Worker& worker_;
    ServerState& state_;
    Transport transport_;
    Watch watch_;
    std::unique_ptr<wire::Session> session_;
    wire::Peer peer_;
    std::string address_key_;
    std::string sniffed_;

    State at_ = State::kHandshake;
    bool dirty_ = false;        // in the loop's end-of-turn list
    bool read_again_ = false;   // stopped with bytes left to read
    MonoNs since_ = 0;          // of the present state
    std::size_t lingered_ = 0;  // bytes dropped
    MonoNs linger_last_ = 0;
    bool blocked_ = false;     // the kernel takes no more output
    bool paced_ = false;       // it did not at an earlier tick either
    wire::Pace pace_;          // of the peer since then
    std::uint64_t taken_ = 0;  // by the peer, at the last tick
    std::size_t counted_ = 0;  // our share of state.buffered
};

}  // namespace zerohop::net
