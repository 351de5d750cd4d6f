package redisfilter_test

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter/live/redisfilter"
	"github.com/siftdb/sift/internal/serve"
)

// Migrating from Redisson's RBloomFilter<String> with StringCodec. Java programs can continue to
// use the same filter:
//
//	tryInit(n, p)                     OpenRedisson with Items and FPR
//	add, contains                     Add, MayContain
//	add(collection)                   AddMany
//	count                             ApproxCount
//	getSize, getHashIterations        Bits, Hashes
//	rename, expire, delete            Rename, Expire, Clear
func Example_fromRedisson() {
	client := redis.NewClient(&redis.Options{Addr: exampleRedis()})
	defer client.Close()
	users, err := redisfilter.OpenRedisson(ctx, client, "users", redisfilter.RedissonOptions[string]{Items: 1000, FPR: 0.01})
	if err != nil {
		panic(err)
	}
	fmt.Println(users.Bits(), users.Hashes())
	fmt.Println(users.Add(ctx, "alice"))
	fmt.Println(users.Add(ctx, "alice"))
	fmt.Println(users.MayContain(ctx, "bob"))
	fmt.Println(users.ApproxCount(ctx))
	fmt.Println(client.HGetAll(ctx, "{users}:config").Val()["falseProbability"]) // as Java writes it
	fmt.Println(users.Expire(ctx, time.Hour), users.Rename(ctx, "people"))
	// Output:
	// 9585 7
	// true <nil>
	// false <nil>
	// false <nil>
	// 1 <nil>
	// 0.01
	// <nil> <nil>
}

// Migrating from RedisBloom, here with sift's own server:
//
//	BF.RESERVE key p n                OpenRedisBloom with Items and FPR
//	BF.ADD, BF.EXISTS                 Add, MayContain
//	BF.MADD, BF.MEXISTS               AddMany, MayContainMany
//	BF.CARD                           ApproxCount
//	BF.EXISTS of a missing key: 0     true, with ErrLost
func Example_fromRedisBloom() {
	dir, _ := os.MkdirTemp("", "redisbloom")
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, &sift.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	server, err := serve.New(db, serve.Config{Addr: "127.0.0.1:0", Fsync: serve.FsyncNo})
	if err == nil {
		err = server.Listen()
	}
	if err != nil {
		panic(err)
	}
	go server.Serve()
	defer server.Close(time.Second)
	client := redis.NewClient(&redis.Options{Addr: server.Addr().String()})
	defer client.Close()

	urls, err := redisfilter.OpenRedisBloom(ctx, client, "urls", redisfilter.RedisBloomOptions[string]{Items: 1000, FPR: 0.01})
	if err != nil {
		panic(err)
	}
	isNew := make([]bool, 3)
	fmt.Println(urls.AddMany(ctx, []string{"a", "b", "a"}, isNew), isNew)
	fmt.Println(urls.MayContain(ctx, "c"))
	fmt.Println(urls.ApproxCount(ctx))
	fmt.Println(client.Do(ctx, "BF.EXISTS", "urls", "a").Bool())
	client.Del(ctx, "urls")
	positive, err := urls.MayContain(ctx, "a")
	fmt.Println(positive, err, redisfilter.Retryable(err))
	// Output:
	// <nil> [true true false]
	// false <nil>
	// 2 <nil>
	// true <nil>
	// true redisfilter: part of the filter is lost: key "urls" false
}

// exampleRedis returns the address of a server. If none can be started, TestMain skips the
// examples that need one.
func exampleRedis() string { return os.Getenv("REDISFILTER_EXAMPLE") }
