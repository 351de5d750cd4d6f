// Package redisfilter keeps Bloom filters in Redis and Redis Cluster, for processes on
// several machines that share one.
//
//	Bloom       the package's own layout: spread over many keys; one command per
//	            operation, which also checks the configuration; rebuilt while in use
//	Redisson    the data of RBloomFilter, shared with Java programs
//	RedisBloom  the BF commands of a server that has them (RedisBloom, sift serve)
//
// All three implement Filter. MayContain returns false only for elements that were not
// added. If that is unknown, because the server does not answer or the data is gone, it
// returns true and an error. Operations that fail with a temporary error, such as a
// failover or slots that move, are retried for RetryFor.
//
// The filters need Redis 6 or a compatible server: Scattered uses BITFIELD_RO.
//
// Use a client that reads from masters: a replica may not have the latest elements. A
// cluster client with ReadOnly or one of the routing options is rejected. The caller closes
// the client; a filter needs no Close.
//
// What Redis loses, the filters lose. Replication is asynchronous; with Options.Replicas,
// an Add of a Bloom returns only when that many replicas have the element. A master that
// restarts from an old snapshot has lost what was added after it, which cannot be
// detected: use an append-only file or Replicas. A key that is evicted or deleted is
// detected: ErrLost. There are two exceptions. A Redisson whose key with bits is gone looks
// empty, so all elements are reported as absent. And a filter whose configuration is gone
// no longer exists: opened with Items, it is created again, empty, while clients that have
// opened a Bloom before go on using its old data. The same holds for the first of several
// RedisBloom shards. So do not use a server that evicts keys
// without an expiry.
package redisfilter
