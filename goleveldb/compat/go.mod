module github.com/siftdb/sift/goleveldb/compat

go 1.26.0

require (
	github.com/siftdb/sift v0.0.0
	golang.org/x/exp v0.0.0-20250305212735-054e65f0b394
	golang.org/x/tools v0.31.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/golang/snappy v1.0.0 // indirect
	golang.org/x/mod v0.24.0 // indirect
	golang.org/x/sync v0.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/siftdb/sift => ../..
