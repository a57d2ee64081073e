// zerohop: the one binary. Each subcommand lives in its own file (command.h).
#include "cli/command.h"

int main(int argc, char** argv) { return zerohop::cli::run(argc, argv); }
