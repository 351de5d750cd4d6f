module github.com/syndtr/goleveldb

go 1.26.0

require (
	github.com/golang/snappy v1.0.0
	github.com/siftdb/sift v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/siftdb/sift => ../
