// Worker: one I/O thread with its loop and the connections it owns.
//
// Owning thread: its own, for all but start(), the post_… functions and join().
#pragma once

#include <memory>
#include <thread>
#include <unordered_map>

#include "net/connection.h"
#include "net/io_loop.h"
#include "net/server_state.h"

namespace zerohop::net {

class Worker {
  public:
    explicit Worker(ServerState& state) : state_(state) {}
    ~Worker() { join(); }

    void start(int number);
    void post_drain();
    // Disconnects everything, then ends the thread.
    void post_stop();
    void join();

    IoLoop& loop() { return loop_; }
    // On the loop's thread, within a turn: takes fd; ssl is made here.
    void adopt(int fd, bool tls, std::string address, std::string address_key);
    void remove(Connection& connection);  // called by Connection::close()

  private:
    void tick();
    void shed();  // memory is over its total: closes the greatest

    ServerState& state_;
    IoLoop loop_;
    std::thread thread_;
    bool stopping_ = false;
    std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
};

}  // namespace zerohop::net
