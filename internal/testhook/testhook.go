// Package testhook lets tests outside the root package open a database on a file
// system of their own. Programs that embed the store cannot import it.
package testhook

import (
	"time"

	"github.com/siftdb/sift/internal/vfs"
)

// Settings is what a test may replace. Zero fields leave things as they are.
type Settings struct {
	FS            vfs.FS        // the file system
	ManifestBytes int64         // the size at which a new MANIFEST begins
	RetryDelay    time.Duration // the pause after a failed flush or compaction
	GapBytes      int           // the memory for gaps; negative: none are remembered
	CleanNow      bool          // files that are not needed any more are removed at once, and Open loads tables
	LoadLate      bool          // tables are loaded only when they are needed
}

// Apply puts settings into a *sift.Options. Package sift sets it.
var Apply func(options any, s Settings)
