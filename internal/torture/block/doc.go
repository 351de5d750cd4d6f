// Package block cuts the power below a real file system. The file behind a loop device is served by
// a FUSE server in a separate process, which records every write and flush that reaches it. A
// database works on a file system on that device; then the package builds images of what a power
// cut may leave: everything that was written before the last flush, and any subset of the rest,
// torn at sectors of 512 bytes. Each image is mounted, so that the file system recovers as it does
// after a crash, and opened by the unmodified store.
//
//	go test .                                              a minute, all file systems that the kernel has
//	go test . -run Block/xfs -budget 30m -timeout 0        one of them, longer
//	go test . -run Engines -v -engines -budget 5m          the other engines, the same way
//	go test . -run Planted -v -planted -timeout 0          plants bugs in the store, which must be found
//	go test . -run Block -seed 7 -keep DIR                 repeats a run; keeps images that violate a guarantee
//
// The tests need root, /dev/fuse, loop devices and mkfs of the file system; they are skipped where
// one of these is missing. The device is only a model: its cache loses or keeps whole sectors, and
// never changes sectors that were not being written.
package block
