// Package torture tests reliability: it runs the store on file systems that lose power, fail, lie
// and fill up, and compares what remains with what was acknowledged. docs/reliability.md lists what
// each test verifies and the results of the last full run.
//
//	go test ./internal/torture                                       the short form
//	go test ./internal/torture -timeout 0 -run Full -budget 30m      the full form, all parts
//	go test ./internal/torture -timeout 0 -run Full/cut -budget 10m  one part
//	go test ./internal/torture -timeout 0 -run Long -long 1h         the long run
//	go run  ./internal/torture/mutate                                remove a Sync, the check of an
//	                                                                 error, or a wakeup, and see which test fails
//
// Every run prints its seed, and -seed repeats it. The disk image of a power cut
// that violates a guarantee is written to the directory that -keep names.
package torture
