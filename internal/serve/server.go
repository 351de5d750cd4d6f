package serve

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/bits"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
)

// Locks are taken in this order: makeMu or world, stripes by number, one filter, growMu or
// watches.mu. Commands hold world for reading; those that must run alone, such as EXEC and
// FLUSHALL, for writing. A key's stripe is held while its head changes, and a filter's lock while
// its bits change. A stripe has a second lock for its map of filters, so that commands on filters
// do not wait for a long write of strings.
//
// Commands that release world and take it again, to let others run, hold yielding for reading
// meanwhile. They do not wait for it: if it is held, they keep world instead.

const (
	numStripes   = 64
	numDatabases = 16
)

type stripe struct {
	mu      sync.Mutex
	names   sync.RWMutex       // after mu
	filters map[string]*filter // by the store's key of their heads; changes under both locks
}

// lock locks the stripe for a change that may affect its filters.
func (st *stripe) lock() {
	st.mu.Lock()
	st.names.Lock()
}

func (st *stripe) unlock() {
	st.names.Unlock()
	st.mu.Unlock()
}

// Server serves clients. New creates one.
type Server struct {
	*front
	cfg Config
	db  *sift.DB

	world    sync.RWMutex
	yielding sync.RWMutex
	gens     [numDatabases]atomic.Uint32 // change under world
	stripes  [numStripes]stripe
	seed     maphash.Seed

	nextID   atomic.Uint64 // the last filter id assigned
	minRedo  uint64        // minRedoBytes, except in tests
	maxWrite int           // what a command or a transaction may write at once
	execMax  int           // execBytes, or maxWrite if that is less, except in tests

	// How many writes to the store have begun, have ended, and are durable.
	begun, puts, synced atomic.Uint64
	syncMu              sync.Mutex
	syncing             atomic.Bool  // a sync of the store is in progress
	heavy               atomic.Int32 // heavy commands in progress, for which others may wait
	failed              atomic.Bool  // a write to the store failed: read-only from now on

	combiner    combiner
	largeValues largeValues
	expiring    expiring
	sweeps      atomic.Int64 // how often the sweeper has read the index
	watches     watches
	watching    atomic.Int64 // how many keys are watched

	checkpoints chan *filter
	garbage     chan uint64 // ids of filters to remove; 0: see oldLeft

	collectPause time.Duration // the constant collectPause, except in tests
	oldLeft      atomic.Bool   // the collector must look for entries that no longer belong to a key

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup // in the background

	clock     groupClock
	retired   atomic.Bool // see Retire; changes under world
	keyCounts keyCounts

	// unconfirmed is held for reading by clients of a leader from a pipeline's first command until
	// their replies are confirmed. It is taken after world.
	unconfirmed sync.RWMutex

	// For a server behind a front end: clients that use the server hold gate for reading, which
	// they take before world.
	gate     sync.RWMutex
	detached bool // changes under gate
}

// front is the part of a Server that belongs to clients and not to a store. The servers of a node's
// groups share one.
type front struct {
	root   *Server // the server of clients that use no other
	shards *shards // nil: root serves all keys

	collectors sync.Pool // of *writes, of clients that use several servers at once

	secret      [16]byte // the prefix of the items that observe looks up
	filterBytes atomic.Int64
	growMu      sync.Mutex // held while filterBytes grows, except when filters are loaded
	makeMu      sync.Mutex // one large filter is made at a time

	requestBytes  atomic.Int64
	unauthBytes   atomic.Int64  // the part that clients take before they authenticate
	short         atomic.Bool   // there was not enough memory for a client
	shortTime     time.Duration // shortTime, except in tests
	largeCommands largeCommands
	fsync         atomic.Int32
	requirePass   atomic.Pointer[string]

	listener net.Listener
	http     *http.Server
	httpAddr net.Addr
	serving  context.Context // ends with Close
	conns    sync.WaitGroup

	loops       []*loop
	oneProc     bool          // GOMAXPROCS is 1
	inUse       atomic.Int32  // how many loops are used
	looped      atomic.Int64  // clients of loops
	slowCommand time.Duration // slowCommand; below 0, in tests: all commands are slow

	clientsMu sync.Mutex
	clients   map[uint64]*client
	closing   bool
	nextConn  uint64

	cursors cursors
	pause   pause
	slowlog slowlog

	defaults   defaults
	opsRate    opsRate
	saving     atomic.Bool
	saveFailed atomic.Bool // the last SAVE or BGSAVE has failed
	leaving    atomic.Bool // SHUTDOWN was requested
	stats      stats
	started    time.Time
}

func newFront(cfg Config, root *Server) *front {
	f := &front{root: root, slowCommand: slowCommand, shortTime: shortTime, started: time.Now(), clients: map[uint64]*client{}}
	f.fsync.Store(int32(cfg.Fsync))
	f.requirePass.Store(&cfg.Password)
	f.defaults.init()
	f.largeCommands.init(cfg.RequestBytes / 2)
	f.slowlog.slower.Store(10_000)
	f.slowlog.most.Store(128)
	f.stats.lastSave.Store(f.started.Unix())
	rand.Read(f.secret[:])
	return f
}

// New creates a server on a database, which must be empty or have been written by a server. With
// Config.Shards db is nil. The caller closes the database after the server.
func New(db *sift.DB, cfg Config) (*Server, error) {
	asked := cfg.MaxClients
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	if cfg.Front == nil && cfg.MaxClients < asked {
		cfg.Logger.Warn("the limit of open files allows fewer clients", "asked", asked, "clients", cfg.MaxClients)
	}
	s := &Server{
		cfg: cfg, db: db, minRedo: minRedoBytes, maxWrite: maxBatch - spareBytes, seed: maphash.MakeSeed(),
		checkpoints: make(chan *filter, 1024), garbage: make(chan uint64, 1024), collectPause: collectPause,
	}
	if cfg.Group != nil {
		s.maxWrite = cfg.Group.MaxBatch() - spareBytes
	}
	s.execMax = min(execBytes, s.maxWrite)
	if cfg.Front != nil {
		s.front = cfg.Front.front
	} else {
		s.front = newFront(cfg, s)
	}
	for i := range s.stripes {
		s.stripes[i].filters = map[string]*filter{}
	}
	if cfg.Shards != nil {
		s.shards = &shards{Shards: cfg.Shards, wait: shardWait}
		s.collectors.New = func() any { return s.newWrites(keptBytes) }
		return s, nil
	}
	if err := s.openKeyspace(); err != nil {
		return nil, err
	}
	if s.follows() { // only a leader needs the state in memory
		return s, nil
	}
	if err := s.load(); err != nil {
		s.unloadFilters()
		return nil, err
	}
	return s, nil
}

// load reads from the store the state that is kept in memory.
func (s *Server) load() error {
	if err := s.readCounts(); err != nil {
		return err
	}
	if err := s.loadFilters(); err != nil {
		return err
	}
	if err := s.findExpiring(); err != nil {
		return err
	}
	if s.cfg.Group != nil {
		return s.readTime()
	}
	return nil
}

// unloadFilters releases the filters' part of the memory for filters, which the servers of a front
// end share.
func (s *Server) unloadFilters() {
	for i := range s.stripes {
		for _, f := range s.stripes[i].filters {
			s.filterBytes.Add(-int64(f.memory()))
		}
	}
}

var (
	metaFormat = []byte{spaceMeta, 'f', 'o', 'r', 'm', 'a', 't'}
	metaGen    = []byte{spaceMeta, 'g', 'e', 'n'}
	metaSync   = []byte{spaceMeta, 's', 'y', 'n', 'c'}
	metaKeys   = []byte{spaceMeta, 'k', 'e', 'y', 's'}
)

// appendGens appends the generations of all databases.
func (s *Server) appendGens(dst []byte) []byte {
	for i := range s.gens {
		dst = binary.BigEndian.AppendUint32(dst, s.gens[i].Load())
	}
	return dst
}

func (s *Server) readGens() error {
	v, err := s.db.Get(metaGen)
	if err != nil {
		return err
	}
	switch len(v) {
	case 4 * numDatabases:
		for i := range s.gens {
			s.gens[i].Store(binary.BigEndian.Uint32(v[4*i:]))
		}
		return nil
	case 4: // written when there was one database
		first := binary.BigEndian.Uint32(v)
		for i := range s.gens {
			s.gens[i].Store(first + uint32(i))
		}
		return s.db.Put(metaGen, s.appendGens(nil), sift.Sync)
	}
	return errHead
}

// openKeyspace initializes an empty database. Otherwise it checks that a server has written the
// database, and reads the generations and the last filter id.
func (s *Server) openKeyspace() error {
	format, err := s.db.Get(metaFormat)
	switch {
	case errors.Is(err, sift.ErrNotFound):
		var b sift.Batch
		b.Put(metaFormat, []byte(formatVersion))
		for i := range s.gens {
			s.gens[i].Store(uint32(i))
		}
		b.Put(metaGen, s.appendGens(nil))
		if s.cfg.Group != nil {
			return s.begin(&b)
		}
		for _, err := range s.db.Scan(nil) {
			if err != nil {
				return err
			}
			return errors.New("serve: the database holds keys that no server wrote; give the server an empty directory")
		}
		return s.db.Write(&b, sift.Sync)
	case err != nil:
		return err
	case string(format) != formatVersion:
		return fmt.Errorf("serve: the database has format %q; this server reads format %q", format, formatVersion)
	}
	if err := s.readGens(); err != nil {
		return err
	}
	it, err := s.db.NewIter(&sift.IterOptions{Prefix: []byte{spaceFilter}})
	if err != nil {
		return err
	}
	if it.Last() && len(it.Key()) > 9 {
		s.nextID.Store(binary.BigEndian.Uint64(it.Key()[1:]))
	} else if it.Valid() {
		s.nextID.Store(binary.BigEndian.Uint64(it.Key()[1:9]))
	}
	return it.Close()
}

// Listen opens the port and starts the background tasks. Call Serve or Close afterwards.
func (s *Server) Listen() error {
	ln, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if s.cfg.TLS != nil {
		ln = tls.NewListener(ln, s.cfg.TLS)
	}
	s.listener = ln
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.serving = s.ctx
	if s.cfg.HTTPAddr != "" {
		if err := s.listenHTTP(); err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	if err := s.startLoops(); err != nil {
		s.cancel()
		return errors.Join(fmt.Errorf("serve: %w", err), ln.Close())
	}
	s.tasks.Go(s.evict)
	if s.cfg.LimitMemory {
		s.tasks.Go(s.limitMemory)
	}
	s.work()
	return nil
}

// work starts the background tasks of a server with a database. A follower has none.
func (s *Server) work() {
	if s.follows() || s.db == nil {
		return
	}
	for _, task := range []func(){s.syncEverySec, s.checkpointer, s.sweeper, s.collector} {
		s.tasks.Go(task)
	}
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// HTTPAddr returns the address of the status page, nil if there is none.
func (s *Server) HTTPAddr() net.Addr { return s.httpAddr }

// Serve accepts clients. It returns nil after Close, and after a client has sent SHUTDOWN; the
// caller then closes the server.
func (s *Server) Serve() error {
	var pause time.Duration
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil || s.leaving.Load() {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			// Most likely the process has run out of file descriptors.
			s.cfg.Logger.Warn("accepting a connection failed", "err", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
			continue
		}
		pause = 0
		s.accept(conn)
	}
}

// Close stops accepting clients, completes the commands in progress, and returns when everything
// has been written. It waits up to grace for clients to read their replies.
func (s *Server) Close(grace time.Duration) error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if s.http != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.clientsMu.Lock()
	s.closing = true
	s.stopLoops(grace)
	for _, c := range s.clients {
		if c.loop.Load() != nil {
			continue
		}
		// A read returns at once; a command in progress notices afterwards.
		c.conn.SetReadDeadline(time.Unix(1, 0))
		c.conn.SetWriteDeadline(time.Now().Add(grace))
	}
	s.clientsMu.Unlock()
	s.conns.Wait()
	s.tasks.Wait()
	if s.cfg.Group != nil {
		return err
	}
	for i := range s.stripes {
		for _, f := range s.stripes[i].filters {
			if f.logged > 0 && !s.failed.Load() {
				err = errors.Join(err, s.checkpoint(f))
			}
		}
	}
	if !s.failed.Load() {
		err = errors.Join(err, s.saveCounts())
	}
	return err
}

func (s *Server) stripeOf(key []byte) int { return int(maphash.Bytes(s.seed, key) % numStripes) }

func (s *Server) stripe(key []byte) *stripe { return &s.stripes[s.stripeOf(key)] }

// stripesOf returns the stripes in a bit set, in the order in which they are locked.
func (s *Server) stripesOf(set uint64) iter.Seq[*stripe] {
	return func(yield func(*stripe) bool) {
		for ; set != 0; set &= set - 1 {
			if !yield(&s.stripes[bits.TrailingZeros64(set)]) {
				return
			}
		}
	}
}

// put writes a batch. After it has returned, a crash of the process does not lose the batch, but a
// power cut may.
func (s *Server) put(b *sift.Batch) error {
	if s.failed.Load() {
		return s.failure()
	}
	s.begun.Add(1)
	if err := s.retry(func() error { return s.store(b) }); err != nil {
		return s.fail(err)
	}
	s.puts.Add(1)
	return nil
}

// retryFor is how long a write is retried for which the store has no room, because a table or a log
// could not be created. Clients wait meanwhile. After that the server is read-only: its filters in
// memory then have changes that the store lacks.
const retryFor = 5 * time.Second

// retry executes a write to the store, and repeats it while the store has no room for it: nothing
// was written then. A group executes its writes itself.
func (s *Server) retry(write func() error) error {
	err := write()
	if !errors.Is(err, sift.ErrTryAgain) || s.cfg.Group != nil {
		return err
	}
	for end := time.Now().Add(retryFor); errors.Is(err, sift.ErrTryAgain) && time.Now().Before(end); err = write() {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// sync makes all writes durable that a client can have seen. A client can see a write before it is
// counted in puts, so while one is in progress there is something to sync.
func (s *Server) sync() error {
	if s.cfg.Group != nil {
		return s.confirm()
	}
	begun := s.begun.Load()
	if s.failed.Load() {
		return errReadOnly
	}
	if s.synced.Load() >= begun {
		return nil
	}
	s.syncMu.Lock() // callers that arrive during a sync share the next one
	defer s.syncMu.Unlock()
	if s.synced.Load() >= begun {
		return nil
	}
	target := s.puts.Load()
	s.syncing.Store(true)
	err := s.retry(func() error { return s.db.Put(metaSync, nil, sift.Sync) })
	s.syncing.Store(false)
	if err != nil {
		return s.fail(err)
	}
	s.stats.syncs.Add(1)
	s.synced.Store(target)
	return nil
}

// unsynced reports whether sync has something to do.
func (s *Server) unsynced() bool { return s.synced.Load() < s.begun.Load() || s.failed.Load() }

// fail records that the store accepts no more writes.
func (s *Server) fail(err error) error {
	if s.failed.CompareAndSwap(false, true) {
		s.cfg.Logger.Error("a write to the store failed, writes are refused from now on", "err", err)
	}
	return s.failure()
}

// syncEverySec syncs once a second while FsyncEverySec is set.
func (s *Server) syncEverySec() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if Fsync(s.fsync.Load()) == FsyncEverySec && s.sync() != nil {
			return
		}
	}
}

func (s *Server) checkpointer() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.checkpoints:
			if s.checkpoint(f) != nil {
				return
			}
			s.stats.checkpoints.Add(1)
		}
	}
}
