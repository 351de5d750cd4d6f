package main

const torture = "internal/torture"

// faults are bugs of LevelDB, goleveldb, pebble, RocksDB, badger and bbolt, from their issue
// trackers, and one of sift's own. Where sift works differently, the planted bug is the nearest
// equivalent, with the same effect for the user.
var faults = []fault{
	// What must be on disk.
	{
		name: "manifest-name", origin: "google/leveldb#189",
		was:   "the directory was not synced between a new MANIFEST and the CURRENT that names it",
		edits: []edit{{"internal/manifest/writer.go", "err = fsys.SyncDir(dir)", "err = nil"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "current-renamed", origin: "google/leveldb#195",
		was:   "nothing synced the directory after CURRENT was renamed, and the files that it no longer named were removed",
		edits: []edit{{"internal/manifest/current.go", "return true, fsys.SyncDir(dir)", "return true, nil"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "current-unsynced", origin: "google/leveldb#74",
		was:   "the new CURRENT was not synced before it was renamed",
		edits: []edit{{"internal/manifest/current.go", "err = f.Sync()", "err = nil"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "bounds-ignored", origin: "cockroachdb/pebble#154",
		was:   "Prev and Next of an iterator that was past an end ignored its bounds",
		edits: []edit{{"iter.go", "if it.lower != nil && bytes.Compare(userKey, it.lower) < 0 {", "if false {"}},
		tests: []suite{{".", "TestIterBounds|TestModel"}},
	}, {
		name: "prefix-exceeded", origin: "facebook/rocksdb#6028",
		was:   "an optimization for scans within one prefix was applied to scans beyond it",
		edits: []edit{{"sstable/prefix.go", "case rangeWithin(lower[:n], upper):", "case true:"}},
		tests: []suite{{"sstable", "TestRangePrefixLen"}, {".", "TestModel"}},
	}, {
		name: "sequence-reused", origin: "cockroachdb/pebble#565",
		was:   "the first write after a restart got the sequence number of the last entry in the tables",
		edits: []edit{{"recover.go", "d.commit.lastSeq, d.commit.log = r.lastSeq,", "d.commit.lastSeq, d.commit.log = max(r.lastSeq, 1)-1,"}},
		tests: []suite{{torture, "TestCut"}, {".", "TestModel"}},
	}, {
		name: "last-deleted", origin: "etcd-io/bbolt#95",
		was:   "Last found nothing when the last keys had been deleted",
		edits: []edit{{"iter.go", "\t\t\tif !deleted {\n\t\t\t\tbreak\n\t\t\t}", "\t\t\tif true {\n\t\t\t\tbreak\n\t\t\t}"}},
		tests: []suite{{".", "TestModel"}},
	}, {
		name: "manifest-unsynced", origin: "syndtr/goleveldb#351",
		was:   "a new MANIFEST was not synced before CURRENT named it and the old one was removed",
		edits: []edit{{"internal/manifest/writer.go", "err = w.Append(s.snapshot())", "err = w.log.Append(s.snapshot().appendTo(nil))"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "log-handover", origin: "dgraph-io/badger#153",
		was:   "a full log was closed without a sync, and the next one was written to and synced",
		edits: []edit{{"internal/wal/writer.go", "s.finish(s.log.sync)", "s.finish(func() error { return nil })"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "log-order", origin: "google/leveldb#193",
		was:   "after a power cut a later write was present and an earlier one was not, because the previous log had not been synced",
		edits: []edit{{"internal/wal/replay.go", "case !bySift || !r.prevBySift || r.nextSeq == 0 || first <= r.nextSeq:", "case true:"}, {"internal/wal/replay.go", "case r.nextSeq != 0 && (first > r.nextSeq || first < r.nextSeq && count > 0):", "case false:"}},
		tests: []suite{{".", "TestGapBetweenLogs|TestPowerCutBetweenLogs"}},
	}, {
		name: "log-name", origin: "cockroachdb/pebble#125",
		was:   "the directory was not synced after a log was created",
		edits: []edit{{"internal/wal/log.go", "err = c.FS.SyncDir(c.Dir)", "err = nil"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "table-name", origin: "dgraph-io/badger#104",
		was:   "the directory was not synced after tables were created",
		edits: []edit{{"tablewrite.go", "err = d.fs.SyncDir(d.dir) // (I2)", "err = nil"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "flush-sync-failed", origin: "facebook/rocksdb#2495",
		was:   "a flush ignored what the fsync of its table returned",
		edits: []edit{{"internal/compact/run.go", "if err := r.file.Sync(); err != nil {\n\t\treturn err\n\t}", "_ = r.file.Sync()"}},
		tests: []suite{{torture, "TestFailedSync"}},
	}, {
		name: "write-after-failure", origin: "facebook/rocksdb#12448",
		was:   "after a failed write to the log, further writes were appended to it and acknowledged",
		edits: []edit{{"write.go", "\tif c.bgErr == nil {\n", "\tif false {\n"}, {"write.go", "\treturn c.bgErr\n}\n\n// makeRoom", "\treturn err\n}\n\n// makeRoom"}},
		tests: []suite{{torture, "TestFailedSync"}},
	}, {
		name: "removed-after-failure", origin: "facebook/rocksdb#5379",
		was:   "after a failed sync of the MANIFEST, files that its edit names were removed, although the edit may be on disk",
		edits: []edit{{"version.go", "\t\t\tmeta.Handle.(*table).close()\n\t\t}\n\t}()", "\t\t\tmeta.Handle.(*table).close()\n\t\t\td.removeObsolete(meta.Handle.(*table).path)\n\t\t}\n\t}()"}},
		tests: []suite{{torture, "TestErrors"}},
	},

	// What a crash leaves.
	{
		name: "stale-log", origin: "cockroachdb/pebble#567",
		was:   "records that were already in tables were replayed again, from a recycled log",
		edits: []edit{{"internal/wal/replay.go", "(num >= state.LogNumber || num == state.PrevLogNum && num != 0)", "true"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "garbage-accepted", origin: "google/leveldb#251",
		was:   "after a power cut garbage within a record was recovered as a value",
		edits: []edit{{"internal/record/reader.go", "case base.Checksum(b[HeaderLen-1:HeaderLen+n]) != binary.LittleEndian.Uint32(b):", "case false:"}},
		tests: []suite{{"internal/record", "TestEveryFlip"}},
	}, {
		name: "short-read", origin: "google/leveldb#1285",
		was:   "a short read of the log was taken for its end",
		edits: []edit{{"internal/record/reader.go", "if got < n {\n", "if got < n && err != nil && err != io.EOF {\n"}},
		tests: []suite{{"internal/record", "TestReadErrors"}},
	}, {
		name: "file-number-reused", origin: "cockroachdb/pebble#788",
		was:   "the number of a file that a crash had left unnamed was reused",
		edits: []edit{{"recover.go", "d.nextFile.Store(num + 1)", "_ = num"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "manifest-overwritten", origin: "facebook/rocksdb#6426",
		was:   "a new MANIFEST was created under the number of the one in use",
		edits: []edit{{"version.go", "num := d.nextFile.Add(1) - 1", "num := d.nextFile.Load()\n\tif d.manifest != nil {\n\t\tnum = d.manifest.Num()\n\t}"}},
		tests: []suite{{torture, "TestCut"}},
	}, {
		name: "sequence-beyond-log", origin: "google/leveldb#750",
		was:   "the MANIFEST had a higher last sequence number than the log begins with: goleveldb drops what is below it",
		edits: []edit{{"version.go", "edit.LastSeq = &d.flushedSeq", "now := d.visible.Load()\n\t\tedit.LastSeq = &now"}},
		tests: []suite{{".", "TestManifestBehindLog"}},
	}, {
		name: "scan-before-flush", origin: "cockroachdb/pebble#5420",
		was:   "Open looked for obsolete files after flushes and compactions had begun, and took their tables for obsolete ones",
		edits: []edit{{"recover.go", "\td.removeOrphans(next)\n\td.startFilterManager()\n\td.startLoader()\n\td.startBackground()\n\treturn nil", "\td.startFilterManager()\n\td.startLoader()\n\td.startBackground()\n\ttime.Sleep(50 * time.Millisecond)\n\td.removeOrphans(next)\n\treturn nil"}, {"recover.go", "\t\"slices\"\n", "\t\"slices\"\n\t\"time\"\n"}},
		tests: []suite{{torture, "TestStress"}},
	},

	// Compactions.
	{
		name: "boundary-inputs", origin: "google/leveldb#339",
		was:   "tables with older versions of the inputs' last key stayed behind",
		edits: []edit{{"internal/compact/picker.go", "last := slices.Index(all, tables[len(tables)-1])", "last := len(all) - 1"}},
		tests: []suite{{"internal/compact", "TestPlansKeepOrder|TestScript"}},
	}, {
		name: "level0-truncated", origin: "google/leveldb#184",
		was:   "a manual compaction took a newer table of level 0 and left an older one that overlaps with it",
		edits: []edit{{"internal/compact/picker.go", "if len(more) == len(tables) {\n", "if more != nil {\n"}},
		tests: []suite{{"internal/compact", "TestPlansKeepOrder|TestScript|TestManualEnds"}},
	}, {
		name: "overlap-of-upper", origin: "dgraph-io/badger#1422",
		was:   "whether a tombstone still hides something on a deeper level was checked only for the range of the upper tables",
		edits: []edit{{"internal/compact/keys.go", "from, to := userRange(plan.Inputs[0], plan.Inputs[1])", "from, to := userRange(plan.Inputs[0])"}},
		tests: []suite{{"internal/compact", "TestNothingBelow"}},
	}, {
		name: "levels-skipped", origin: "dgraph-io/badger#2278",
		was:   "a tombstone was moved past a level that still held the value, and dropped at the bottom",
		edits: []edit{{"internal/compact/keys.go", "for level := plan.Level; level < manifest.NumLevels; level++ {", "for level := plan.OutputLevel + 2; level < manifest.NumLevels; level++ {"}},
		tests: []suite{{"internal/compact", "TestNothingBelow"}},
	}, {
		name: "neighbors-of-inputs", origin: "dgraph-io/badger#464",
		was:   "a tombstone was dropped although a neighboring table of its level held an older version of its key",
		edits: []edit{{"internal/compact/keys.go", "for level := plan.Level; level < manifest.NumLevels; level++ {", "for level := plan.OutputLevel + 1; level < manifest.NumLevels; level++ {"}},
		tests: []suite{{"internal/compact", "TestNothingBelow"}},
	}, {
		name: "first-key-dropped", origin: "facebook/rocksdb#13155",
		was:   "a compaction dropped its first entry as an older version of a preceding key, although none precedes it",
		edits: []edit{{"internal/compact/run.go", "sameKey := have && bytes.Equal(userKey, key)", "sameKey := (have || !have) && bytes.Equal(userKey, key)"}},
		tests: []suite{{".", "TestModel"}},
	}, {
		name: "snapshot-raced", origin: "cockroachdb/pebble#6087",
		was:   "a compaction missed a snapshot, and dropped what only that snapshot could see",
		edits: []edit{{"snapshot.go", "append(slices.Clone(l.seqs), visible.Load())", "append(slices.Clone(l.seqs[:max(1, len(l.seqs))-1]), visible.Load())"}},
		tests: []suite{{".", "TestCompactionDropsWhatNobodySees|TestModel"}},
	},

	// Files that are still needed.
	{
		name: "checkpoint-loses-table", origin: "yugabyte/yugabyte-db#1491",
		was:   "a checkpoint mixed two moments: its MANIFEST named tables that it had not linked",
		edits: []edit{{"checkpoint.go", "err = copied.newManifest(version)", "err = copied.newManifest(d.state.Load().version)"}},
		tests: []suite{{torture, "TestStress"}},
	}, {
		name: "reader-not-awaited", origin: "dgraph-io/badger#203",
		was:   "a file was removed while readers were still using it",
		edits: []edit{{"version.go", "d.epoch.Synchronize()", "_ = &d.epoch"}},
		tests: []suite{{torture, "TestLinear|TestStress"}},
	},

	// Waiting.
	{
		name: "stall-unwoken", origin: "sift before 1.0",
		was: "a write that waited for level 0 was not woken when a manual compaction had emptied it",
		edits: []edit{
			{"version.go", "d.bg.change(func() {\n\t\ts := *d.state.Load()", "func(f func()) { d.bg.mu.Lock(); f(); d.bg.mu.Unlock() }(func() {\n\t\ts := *d.state.Load()"},
			{"compactloop.go", "b.change(func() {\n\t\tj.running = false", "func(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }(func() {\n\t\tj.running = false"},
		},
		tests: []suite{{torture, "Full/stress"}},
		args:  []string{"-budget", "3m"},
	},

	// Iterators.
	{
		name: "merge-turned", origin: "facebook/rocksdb#648",
		was:   "an iterator that changed direction continued from where the merged iterators stood",
		edits: []edit{{"iter.go", "\t\tit.in.SeekLT(it.seek)\n\t}\n\treturn it.back(it.findPrev(false))", "\t\tit.in.Prev()\n\t}\n\treturn it.back(it.findPrev(false))"}},
		tests: []suite{{".", "TestModel"}},
	}, {
		name: "end-of-table", origin: "cockroachdb/pebble#413",
		was:   "a seek past the last key of a table, but within its bounds, did not continue in the next table",
		edits: []edit{{"internal/merge/level.go", "for !ok && l.atEnd() && i+1 < l.n {", "for !ok && l.atEnd() && i+1 < l.n && i != 0 {"}},
		tests: []suite{{"internal/merge", "TestLevelAgainstModel"}},
	}, {
		name: "beginning-of-table", origin: "cockroachdb/pebble#461",
		was:   "Prev at the first key of a table did not move to the previous table",
		edits: []edit{{"internal/merge/level.go", "\t\tok = l.load(i) && l.it.Last()", "\t\tok = l.load(i) && l.it.First()"}},
		tests: []suite{{"internal/merge", "TestLevelAgainstModel"}},
	},

	// Filters, blocks, caches.
	{
		name: "signed-hash", origin: "google/leveldb#243",
		was:   "the hash of a Bloom filter depended on whether the machine's char is signed: false negatives",
		edits: []edit{{"sstable/leveldbfilter.go", "h := levelDBHash(key.Bytes, false)", "h := levelDBHash(key.Bytes, true)"}},
		tests: []suite{{"sstable", "TestLevelDBFilter"}},
	}, {
		name: "filter-index-seek", origin: "facebook/rocksdb#923",
		was:   "the block whose filter is probed was sought with sequence number 0, behind the blocks of the key",
		edits: []edit{{"sstable/leveldbfilter.go", "f.index.find(key.Bytes, base.Trailer(base.MaxSequence, base.KindSeek))", "f.index.find(key.Bytes, base.Trailer(0, base.KindDelete))"}},
		tests: []suite{{"sstable", "TestLevelDBFilter"}},
	}, {
		name: "filter-separator", origin: "facebook/rocksdb#5835",
		was:   "the separator of two blocks was the key itself, and only the filter of the first block was probed",
		edits: []edit{{"sstable/leveldbfilter.go", "if !f.index.endsAt(i, key.Bytes) {", "if true {"}},
		tests: []suite{{"sstable", "TestLevelDBFilter"}},
	}, {
		name: "cache-collision", origin: "facebook/rocksdb#7405",
		was: "two blocks had one key in the block cache: the wrong one was read",
		edits: []edit{
			{"sstable/cache.go", "return g.blocks[i%indexGroupLen].Load()", "return g.blocks[i%indexGroupLen&^1].Load()"},
			{"sstable/cache.go", "g.blocks[n.i%indexGroupLen].Store(b)", "g.blocks[n.i%indexGroupLen&^1].Store(b)"},
		},
		tests: []suite{{"sstable", "TestCache"}},
	}, {
		name: "restart-narrowed", origin: "cockroachdb/pebble#4243",
		was:   "offsets within a block had too few bits for large blocks (16 here, 32 there)",
		edits: []edit{{"sstable/blockwriter.go", "w.restarts = append(w.restarts, uint32(len(w.buf)))", "w.restarts = append(w.restarts, uint32(uint16(len(w.buf))))"}},
		tests: []suite{{"sstable", "TestLargeBlocks"}},
	}, {
		name: "block-boundary", origin: "dain/leveldb#20",
		was:   "a log writer that ended exactly at the end of a block began the next chunk one byte off",
		edits: []edit{{"internal/record/writer.go", "if room < HeaderLen {", "if room <= HeaderLen {"}},
		tests: []suite{{"internal/record", "TestExactSevenLeft|TestBlockBoundaries"}},
	},

	// Transactions.
	{
		name: "own-writes-unseen", origin: "dgraph-io/badger#286",
		was:   "an iterator within a transaction did not see what the transaction had written",
		edits: []edit{{"iteropen.go", "children, it.lastOwn = it.tx.written.iterators(it.tx, children)", "_ = it.tx.written"}},
		tests: []suite{{".", "TestTxModel"}},
	}, {
		name: "absent-not-noted", origin: "dgraph-io/badger#1328",
		was:   "an iterator's seek that found nothing was missing from the transaction's read set",
		edits: []edit{{"txreads.go", "case !ok && t.it.upper == nil:\n\t\tr.open = true", "case !ok && t.it.upper == nil:"}},
		tests: []suite{{".", "TestTx"}},
	}, {
		name: "write-skew", origin: "dgraph-io/badger#409",
		was:   "new keys in a range that a transaction had read were not a conflict",
		edits: []edit{{"txreads.go", "i >= 0 && (s.ranges[i].open || bytes.Compare(key, s.ranges[i].upper) < 0)", "false && i > 0"}},
		tests: []suite{{".", "TestTx|TestLeaderFindsConflicts"}, {torture, "TestTxn$"}},
	},
}
