// Package plant plants bugs in the store for tests to find. It changes no file: a bug is compiled
// in through an overlay.
package plant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces text that a file holds exactly once.
type Edit struct {
	File     string // below the module's root
	Old, New string
}

// Overlay writes changed copies of files into dir and returns the path of the overlay
// that substitutes them.
func Overlay(root, dir string, edits []Edit) (string, error) {
	changed := map[string]string{}
	for _, e := range edits {
		src, ok := changed[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
			if err != nil {
				return "", err
			}
			src = string(b)
		}
		if n := strings.Count(src, e.Old); n != 1 {
			return "", fmt.Errorf("%s holds %q %d times", e.File, e.Old, n)
		}
		changed[e.File] = strings.Replace(src, e.Old, e.New, 1)
	}
	replace := map[string]string{}
	for file, src := range changed {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = path
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o644)
}
