// Package testhook lets tests outside the root package configure what users cannot, such as
// the file system. Programs that embed the store cannot import it.
package testhook

import (
	"time"

	"github.com/siftdb/sift/internal/vfs"
)

// Settings overrides internals for tests. Zero fields change nothing.
type Settings struct {
	FS            vfs.FS        // the file system
	ManifestBytes int64         // the size at which a new MANIFEST is started
	RetryDelay    time.Duration // the pause after a failed flush or compaction
	GapBytes      int           // the memory for gaps; negative: no gaps
	CleanNow      bool          // obsolete files are removed synchronously, and Open loads the tables
	LoadLate      bool          // tables are only loaded when they are needed
}

// Apply puts settings into a *sift.Options. Package sift sets it.
var Apply func(options any, s Settings)
