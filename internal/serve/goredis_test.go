package serve

import (
	"bytes"
	"context"
	"encoding/json"
	cmdline "flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var goRedis = cmdline.Bool("goredis", false, "run go-redis' own tests; its module and those that it is tested with are downloaded")

// The groups of go-redis' tests that need one server and nothing but what is in scope, but
// for the tests in testdata/go-redis.txt.
const goRedisTests = `^go-redis (Tx |pipelining |AutoPipeline|Commands (server|keys|scanning|strings|marshaling|json marshaling|SlowLog) |ScanIterator|` +
	`Probabilistic commands with protocol version . (bloom|cuckoo)|BitCount|Client |Cmd |RawCmd |RawWriteToCmd |NoRetry )`

// go-redis' own tests pass against the server.
func TestGoRedisSuite(t *testing.T) {
	if !*goRedis {
		t.Skip("not asked for with -goredis")
	}
	suite := buildGoRedis(t)
	skip := []string{"Client-side"}
	for _, name := range skippedTests(t, "testdata/go-redis.txt") {
		skip = append(skip, regexp.QuoteMeta(name)+`( \[|$)`)
	}
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, suite, "-test.run", "TestGinkgoSuite", "-ginkgo.no-color", "-ginkgo.focus", goRedisTests,
		"-ginkgo.skip", strings.Join(skip, "|"), "-ginkgo.json-report", report)
	cmd.Dir = filepath.Dir(suite)
	cmd.Env = append(os.Environ(), "REDIS_VERSION=7.0", "SERVER_PORT="+portOf(s.Addr().String()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if passed := passedSpecs(t, report); passed < 290 {
		t.Errorf("only %d tests passed", passed)
	} else {
		t.Logf("%d of go-redis' own tests passed", passed)
	}
	rowInDocs(t, "| go-redis | its own tests of strings, keys, scans, pipelines, transactions, the server, filters |")
}

// buildGoRedis builds go-redis' tests so that they ask one server, at the environment's
// SERVER_PORT, and returns the program.
func buildGoRedis(t *testing.T) string {
	t.Helper()
	run := func(dir string, args ...string) ([]byte, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	module, err := run(".", "list", "-m", "-f", "{{.Dir}}", "github.com/redis/go-redis/v9")
	if err != nil {
		t.Fatalf("%v\n%s", err, module)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(string(bytes.TrimSpace(module)))); err != nil {
		t.Fatal(err)
	}
	replace := func(file, from, to string, count int) {
		t.Helper()
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte(from)); n != count {
			t.Fatalf("%s has %q %d times", file, from, n)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(from), []byte(to)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	replace("main_test.go", "\tredisPort = redisStackPort\n", "\tredisStackPort = os.Getenv(\"SERVER_PORT\")\n\tredisStackAddr = \":\" + redisStackPort\n\tredisPort = redisStackPort\n", 1)
	replace("main_test.go", "\tif !RECluster {\n", "\tif false {\n", 2) // rings, sentinels and clusters
	replace("probabilistic_test.go", `"localhost:6379"`, "redisStackAddr", 1)
	if out, err := run(dir, "mod", "download"); err != nil {
		t.Skipf("the modules of go-redis' tests cannot be had: %v\n%s", err, out)
	}
	suite := filepath.Join(dir, "suite.test")
	if out, err := run(dir, "test", "-vet=off", "-trimpath", "-c", "-o", suite, "."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return suite
}

// skippedTests returns the names before the bars of a list.
func skippedTests(t *testing.T, file string) (names []string) {
	t.Helper()
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if name, _, ok := strings.Cut(line, " | "); ok && line[0] != '#' {
			names = append(names, name)
		}
	}
	return names
}

// passedSpecs counts the tests that passed, by Ginkgo's report.
func passedSpecs(t *testing.T, report string) (passed int) {
	t.Helper()
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var suites []struct {
		SpecReports []struct{ LeafNodeType, State string }
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType == "It" && spec.State == "passed" {
				passed++
			}
		}
	}
	return passed
}
