package serve

import (
	"context"
	"errors"
	cmdline "flag"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/goredis"
)

var goRedis = cmdline.Bool("goredis", false, "run go-redis' own tests; its module and those that it is tested with are downloaded")

// The groups of go-redis' tests that need a single server and, except for the tests in
// testdata/go-redis.txt, only commands that are in scope.
const goRedisTests = `^go-redis (Tx |pipelining |AutoPipeline|Commands (server|keys|scanning|strings|marshaling|json marshaling|SlowLog) |ScanIterator|` +
	`Probabilistic commands with protocol version . (bloom|cuckoo)|BitCount|Client |Cmd |RawCmd |RawWriteToCmd |NoRetry )`

// singleServer makes go-redis' tests use one server, at the environment's SERVER_PORT.
var singleServer = []goredis.Edit{
	{File: "main_test.go", From: "\tredisPort = redisStackPort\n", To: "\tredisStackPort = os.Getenv(\"SERVER_PORT\")\n\tredisStackAddr = \":\" + redisStackPort\n\tredisPort = redisStackPort\n", Count: 1},
	{File: "main_test.go", From: "\tif !RECluster {\n", To: "\tif false {\n", Count: 2}, // rings, sentinels and clusters
	{File: "probabilistic_test.go", From: `"localhost:6379"`, To: "redisStackAddr", Count: 1},
}

// go-redis' own tests pass against the server.
func TestGoRedisSuite(t *testing.T) {
	if !*goRedis {
		t.Skip("requires -goredis")
	}
	suite, err := goredis.Build(t.TempDir(), singleServer)
	if errors.Is(err, goredis.ErrModules) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	skip, err := goredis.Skipped("testdata/go-redis.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	env := []string{"REDIS_VERSION=7.0", "SERVER_PORT=" + portOf(s.Addr().String())}
	passed, err := goredis.Run(ctx, suite, env, goRedisTests, append(skip, "Client-side"))
	if err != nil {
		t.Error(err)
	}
	if len(passed) < 290 {
		t.Errorf("only %d tests passed", len(passed))
	} else {
		t.Logf("%d of go-redis' own tests passed", len(passed))
	}
	rowInDocs(t, "| go-redis | its own tests of strings, keys, scans, pipelines, transactions, the server, filters |")
}
