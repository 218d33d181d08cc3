#include "coordinator/launcher/supervise.h"

// `regattad supervise FOLDER` alone, so that launcher tests need none of the daemon's services.
int main(int argc, char** argv) { return argc == 3 ? regatta::Supervise(argv[2]) : 2; }
