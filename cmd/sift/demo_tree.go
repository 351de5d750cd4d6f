package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/siftdb/sift"
)

// goroot returns the directory of the Go installation, as the go command reports it.
func goroot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	root := strings.TrimSpace(string(out))
	if root == "" {
		return "", errors.New("go env GOROOT: no output")
	}
	return root, nil
}

// textTree lists the regular files below a directory.
type textTree struct {
	root  string
	files []string // paths below root
	bytes int64
}

// findText lists the files below root. It does not follow links.
func findText(ctx context.Context, root string) (textTree, error) {
	t := textTree{root: root}
	// With the slash, a root that is itself a link is followed.
	err := filepath.WalkDir(root+string(filepath.Separator), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		t.files = append(t.files, rel)
		t.bytes += info.Size()
		return nil
	})
	if err == nil && len(t.files) == 0 {
		err = fmt.Errorf("%s: no files", root)
	}
	return t, err
}

// load stores a key for each line of each text file, up to limit keys if limit is
// not 0, and returns their number. Files with a NUL byte near the start are not text.
func (d *demo) load(db *sift.DB, tree textTree, limit int64) (n int64, err error) {
	p := d.progress("storing", tree.bytes)
	defer p.done()
	var batch sift.Batch
	var key []byte
	done := int64(0)
	for _, name := range tree.files {
		if d.ctx.Err() != nil {
			return n, d.ctx.Err()
		}
		text, err := os.ReadFile(filepath.Join(tree.root, name))
		if err != nil {
			return n, err
		}
		done += int64(len(text))
		if bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
			continue
		}
		line := 0
		for value := range bytes.Lines(text) {
			if limit != 0 && n == limit {
				break
			}
			line++
			n++
			key = fmt.Appendf(key[:0], "%s:%07d", filepath.ToSlash(name), line)
			batch.Put(key, bytes.TrimSuffix(value, []byte{'\n'}))
			d.keys.offer(key)
			if batch.Size() >= loadBatchBytes {
				if err := db.Write(&batch, sift.NoSync); err != nil {
					return n, err
				}
				batch.Reset()
				if d.ctx.Err() != nil {
					return n, d.ctx.Err()
				}
			}
		}
		p.set(done)
	}
	if n == 0 {
		return 0, fmt.Errorf("%s: no text files", tree.root)
	}
	return n, db.Write(&batch, sift.NoSync)
}

// sample keeps up to size of the keys that it is offered, each with the same
// probability (reservoir sampling; Vitter, "Random Sampling with a Reservoir", 1985).
// It is deterministic.
type sample struct {
	size    int
	offered int
	rng     *rand.Rand
	keys    [][]byte
}

func (s *sample) offer(key []byte) {
	if s.rng == nil {
		s.rng = rand.New(rand.NewPCG(1, 2))
	}
	s.offered++
	if len(s.keys) < s.size {
		s.keys = append(s.keys, bytes.Clone(key))
	} else if i := s.rng.IntN(s.offered); i < s.size {
		s.keys[i] = append(s.keys[i][:0], key...)
	}
}

// between returns absent keys, in random order: for each key of the sample, one that
// sorts between it and the key of the next line, like a line 123.5.
func (s *sample) between() [][]byte {
	keys := make([][]byte, len(s.keys))
	for i, j := range s.rng.Perm(len(s.keys)) {
		keys[i] = append(bytes.Clone(s.keys[j]), ".5"...)
	}
	return keys
}
