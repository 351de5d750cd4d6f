package cluster

import "os"

// Windows does not pause processes by signals; tests that need them are skipped.
var stopSignal, contSignal os.Signal
