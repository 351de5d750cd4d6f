package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeleteRange: the bounds of --range and the prefix of --prefix determine what is deleted.
func TestDeleteRange(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	for i := range 9 {
		mustSift(t, "", "put", db, fmt.Sprintf("key%d", i), "value")
	}
	mustSift(t, "", "delete", "--range", db, "key2", "key5")
	mustSift(t, "", "delete", "--prefix", db, "key8")
	var keys []string
	for line := range strings.Lines(mustSift(t, "", "scan", db)) {
		keys = append(keys, strings.Fields(line)[0])
	}
	if got := strings.Join(keys, " "); got != "key0 key1 key5 key6 key7" {
		t.Errorf("%s remain", got)
	}
}
