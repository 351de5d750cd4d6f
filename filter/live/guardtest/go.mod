module github.com/siftdb/sift/filter/live/guardtest

go 1.26.0

require (
	github.com/lib/pq v1.10.9
	github.com/redis/go-redis/v9 v9.23.0
	github.com/siftdb/sift v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/twmb/murmur3 v1.2.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/siftdb/sift => ../../..
