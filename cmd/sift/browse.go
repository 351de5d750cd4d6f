package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/siftdb/sift"
)

type browseCmd struct {
	form
	Addr string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Listen on this loopback address. Port 0 is any free port. Default: ${default}."`
	Dir  string `arg:"" help:"The database."`
}

func (browseCmd) Help() string {
	return `Shows a database in a web browser: keys and values, levels and tables, the blocks of a table
and their entries, and filters. For a key it shows whether each table's filter excludes it, and which
table holds it. It prints the address of the page and runs until Ctrl-C.

The database is opened read-only: nothing can be changed, and no other process can write to it
meanwhile. The page is served to this machine only. Its address contains a random secret, so other
users of the machine and other web sites cannot read it.

Examples:

    sift browse db
    sift browse --hex --addr localhost:8080 db`
}

func (c *browseCmd) Run(e *env) error {
	if err := c.checkAddr(); err != nil {
		return err
	}
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		l, err := net.Listen("tcp", c.Addr)
		if err != nil {
			return err
		}
		b := &browser{form: c.form, db: db, dir: c.Dir, secret: rand.Text(), addr: l.Addr().(*net.TCPAddr)}
		server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 4 << 20}
		fmt.Fprintf(e.out, "http://%s/%s/\n", l.Addr(), b.secret)
		if err := e.out.Flush(); err != nil {
			return errors.Join(err, l.Close())
		}
		ended := make(chan struct{})
		stop := context.AfterFunc(e.ctx, func() {
			defer close(ended)
			grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if server.Shutdown(grace) != nil {
				server.Close()
			}
		})
		err = server.Serve(l)
		if !stop() {
			<-ended
			return nil
		}
		return err
	})
}

// checkAddr refuses addresses that other machines can reach.
func (c *browseCmd) checkAddr() error {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return usage(fmt.Errorf("--addr: %w", err))
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return usage(fmt.Errorf("--addr %s: not a loopback address, such as 127.0.0.1", c.Addr))
	}
	return nil
}

// browser serves the pages.
type browser struct {
	form
	db     *sift.DB
	dir    string
	secret string // the first element of each path
	addr   *net.TCPAddr
}

// policy lets the pages load their style sheet and an inline icon, and nothing else.
const policy = "default-src 'none'; img-src data:; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (b *browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	secret, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case !b.isHost(r.Host):
		// Another site's name may resolve to this machine (DNS rebinding).
		http.Error(w, "This page is served under its own address only.", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "This page is read-only.", http.StatusMethodNotAllowed)
	case !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(b.secret)) != 1:
		http.NotFound(w, r)
	case path == "style.css":
		h.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(browseStyle) // an error means that the client has disconnected
	default:
		b.page(w, r, path)
	}
}

// isHost reports whether a Host header is the server's address or localhost: names that no
// other site can have.
func (b *browser) isHost(host string) bool {
	for _, name := range []string{b.addr.String(), net.JoinHostPort("localhost", fmt.Sprint(b.addr.Port))} {
		// Browsers leave out the default port.
		if host == name || host == strings.TrimSuffix(name, ":80") {
			return true
		}
	}
	return false
}
