package siftd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/vfs"
)

// A backup is a directory:
//
//	group-N         the output of cluster.Node.Backup for group N
//	manifest.json   a Manifest, written last
//
// On disk; do not change.
const (
	manifestName = "manifest.json"
	groupPrefix  = "group-"
)

// Manifest describes a backup.
type Manifest struct {
	Format int     // 1
	Sizes  []int64 // of the groups' files, in bytes
}

const manifestFormat = 1

// backupPages returns the handlers that Backup needs:
//
//	GET /backup     the number of groups
//	GET /backup/N   a backup of group N, from its leader
func (n *Node) backupPages() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /backup":         func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, n.groups()) },
		"GET /backup/{group}": n.serveBackup,
	}
}

func (n *Node) serveBackup(w http.ResponseWriter, r *http.Request) {
	group, err := strconv.Atoi(r.PathValue("group"))
	if err != nil || group < 0 || group >= n.groups() {
		http.Error(w, "there is no such group", http.StatusNotFound)
		return
	}
	node := n.member(group)
	if node == nil || node.Raft().State() != raft.Leader {
		http.Error(w, "another node leads the group", http.StatusMisdirectedRequest)
		return
	}
	out := deadlineWriter{w: w, control: http.NewResponseController(w)}
	if _, err := node.Backup(r.Context(), &out); err != nil {
		n.cfg.Logger.Warn("a backup ended early", "group", group, "err", err)
		if out.begun {
			panic(http.ErrAbortHandler) // the client sees that it is incomplete
		}
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// deadlineWriter gives a client a minute for each write, with no limit for all writes together.
type deadlineWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.begun = true
	if err := p.control.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// BackupSource is the cluster that Backup backs up.
type BackupSource struct {
	// Pages are the URLs of its nodes' status pages, such as http://10.0.0.1:7200, without a final
	// slash.
	Pages []string
	// Password is the cluster's.
	Password string
	// Client sends the requests. Default: http.DefaultClient.
	Client *http.Client

	silence, wait time.Duration // for tests: silentTime and leaderTime
}

// silentTime is how long a node may send nothing, as when it is paused, before Backup tries another
// one. It leaves time for the snapshot that a node takes before it begins to send.
const silentTime = 2 * time.Minute

// errSilent: a node has sent nothing for a while.
var errSilent = errors.New("the node does not answer")

// leaderTime is how long Backup waits for a group to have a leader.
const leaderTime = 30 * time.Second

// Backup backs up a cluster into dir, which must not exist. The backup of each group is
// consistent and has everything that was acknowledged before the call. After an error, dir may hold
// an incomplete backup, which cannot be restored.
func Backup(ctx context.Context, from BackupSource, dir string) error {
	if from.Client == nil {
		from.Client = http.DefaultClient
	}
	if from.silence == 0 {
		from.silence = silentTime
	}
	if from.wait == 0 {
		from.wait = leaderTime
	}
	from.Pages = slices.Clone(from.Pages)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	groups, err := from.groups(ctx)
	if err != nil {
		return err
	}
	m := Manifest{Format: manifestFormat}
	for group := range groups {
		size, err := from.group(ctx, group, filepath.Join(dir, groupPrefix+strconv.Itoa(group)))
		if err != nil {
			return fmt.Errorf("siftd: group %d: %w", group, err)
		}
		m.Sizes = append(m.Sizes, size)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return errors.Join(durable.Replace(filepath.Join(dir, manifestName), append(text, '\n')), vfs.OS.SyncDir(filepath.Dir(dir)))
}

// groups returns the number of groups.
func (s BackupSource) groups(ctx context.Context) (int, error) {
	var errs []error
	for _, page := range slices.Clone(s.Pages) {
		body, err := s.get(ctx, page+"/backup")
		if errors.Is(err, errSilent) {
			s.tryLast(page)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		groups := 0
		_, err = fmt.Fscan(io.LimitReader(body, 100), &groups)
		body.Close()
		if err == nil && groups > 0 {
			return groups, nil
		}
		errs = append(errs, fmt.Errorf("%s does not know how many groups there are", page))
	}
	return 0, fmt.Errorf("siftd: no node reports the number of groups: %w", errors.Join(errs...))
}

// group copies a group from the node that leads it.
func (s BackupSource) group(ctx context.Context, group int, path string) (size int64, err error) {
	failed := map[string]bool{} // the nodes that have failed while they sent the group
	for end := time.Now().Add(s.wait); ; {
		var errs []error
		for _, page := range slices.Clone(s.Pages) {
			body, err := s.get(ctx, page+"/backup/"+strconv.Itoa(group))
			if err == nil {
				size, err = save(body, path)
				body.Close()
				if err != nil && !failed[page] { // the group may need another leader
					failed[page] = true
					end = time.Now().Add(s.wait)
				}
			}
			if err == nil {
				return size, nil
			}
			if errors.Is(err, errSilent) {
				s.tryLast(page)
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); time.Now().After(end) || !pause(ctx, 100*time.Millisecond) {
			return 0, err
		}
	}
}

// tryLast moves a node to the end of Pages, so that it is tried last.
func (s BackupSource) tryLast(page string) {
	if i := slices.Index(s.Pages, page); i >= 0 {
		copy(s.Pages[i:], s.Pages[i+1:])
		s.Pages[len(s.Pages)-1] = page
	}
}

func (s BackupSource) get(ctx context.Context, url string) (_ io.ReadCloser, err error) {
	a := &answer{url: url, most: s.silence}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.late = time.AfterFunc(a.most, func() { a.cancel(errSilent) })
	defer func() {
		if err != nil {
			err = a.explain(err)
			a.Close()
		}
	}()
	req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if s.Password != "" {
		req.SetBasicAuth("", s.Password)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	a.body = resp.Body
	a.late.Stop()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(a, 200)) // the reason, if there is one
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return a, nil
}

// answer is the body of a response. The request ends once the node has sent nothing for a while.
type answer struct {
	url    string
	body   io.ReadCloser // nil before there is a response
	ctx    context.Context
	cancel context.CancelCauseFunc
	late   *time.Timer
	most   time.Duration
}

func (a *answer) Read(p []byte) (int, error) {
	a.late.Reset(a.most)
	n, err := a.body.Read(p)
	a.late.Stop()
	if err != nil && err != io.EOF {
		err = a.explain(err)
	}
	return n, err
}

// explain returns errSilent if that is the cause of err, and otherwise err.
func (a *answer) explain(err error) error {
	if errors.Is(context.Cause(a.ctx), errSilent) {
		return fmt.Errorf("%s: %w", a.url, errSilent)
	}
	return err
}

// Close ends the request.
func (a *answer) Close() error {
	a.late.Stop()
	a.cancel(nil)
	if a.body == nil {
		return nil
	}
	return a.body.Close()
}

func save(r io.Reader, path string) (size int64, err error) {
	f, err := vfs.OS.Create(path)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	return size, errors.Join(err, f.Close())
}

func readManifest(dir string) (m Manifest, err error) {
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("siftd: not a complete backup: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("siftd: %s: %w", path, err)
	}
	if m.Format != manifestFormat || len(m.Sizes) == 0 {
		return m, fmt.Errorf("siftd: %s has an unknown format", path)
	}
	for group, size := range m.Sizes {
		file := filepath.Join(dir, groupPrefix+strconv.Itoa(group))
		if have, err := vfs.OS.Size(file); err != nil || have != size {
			return m, errors.Join(err, fmt.Errorf("siftd: %s has %d bytes of %d", file, have, size))
		}
	}
	return m, nil
}

// restoringName is a file that exists while a node starts from a backup. A node that was stopped
// during that must not continue with an incomplete database.
const restoringName = "restoring"

// beginRestore is called before the node has any data.
func (n *Node) beginRestore(fresh bool) error {
	path := filepath.Join(n.cfg.Dir, restoringName)
	switch _, err := os.Stat(path); {
	case err == nil:
		return fmt.Errorf("siftd: a restore into %s was interrupted: empty the directory and restore again", n.cfg.Dir)
	case !errors.Is(err, os.ErrNotExist):
		return err
	case !fresh || n.cfg.Restore == "":
		return nil
	case !n.cfg.Init:
		return errors.New("siftd: only the node that creates the cluster can restore a backup")
	}
	return durable.Replace(path, nil)
}

// restore installs the backup. No client is served yet.
func (n *Node) restore(m Manifest) error {
	for group, size := range m.Sizes {
		if err := restoreGroup(n.member(group), filepath.Join(n.cfg.Restore, groupPrefix+strconv.Itoa(group)), size); err != nil {
			return fmt.Errorf("siftd: restoring group %d: %w", group, err)
		}
	}
	if err := vfs.OS.Remove(filepath.Join(n.cfg.Dir, restoringName)); err != nil {
		return err
	}
	return vfs.OS.SyncDir(n.cfg.Dir)
}

func restoreGroup(node *cluster.Node, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), leaderTime)
	defer cancel()
	for node.Raft().State() != raft.Leader {
		if !pause(ctx, 5*time.Millisecond) {
			return errors.New("the group has no leader")
		}
	}
	return node.RestoreBackup(f, size)
}
