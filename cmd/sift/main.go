// Command sift reads, writes, checks and repairs databases from the command line. Run
// sift --help.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
)

func main() {
	// With SIGPIPE ignored, a write to a closed pipe returns an error, and the database is closed
	// as usual.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first interrupt cancels the command; a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The grammar: each command is a struct in its own file.
type commands struct {
	Get        getCmd        `cmd:"" help:"Print the value of a key."`
	Put        putCmd        `cmd:"" help:"Set a key to a value."`
	Delete     deleteCmd     `cmd:"" help:"Delete keys."`
	Scan       scanCmd       `cmd:"" help:"Print keys and values in key order."`
	Load       loadCmd       `cmd:"" help:"Store the keys and values on standard input."`
	Batch      batchCmd      `cmd:"" help:"Apply the puts and deletes on standard input as one atomic write."`
	Dump       dumpCmd       `cmd:"" help:"Print what a table, a log or a MANIFEST contains."`
	Check      checkCmd      `cmd:"" help:"Read everything and report damage."`
	Repair     repairCmd     `cmd:"" help:"Rebuild a database from its tables and logs."`
	Compact    compactCmd    `cmd:"" help:"Compact tables into the deepest level."`
	Checkpoint checkpointCmd `cmd:"" help:"Copy a database with hard links."`
	Stats      statsCmd      `cmd:"" help:"Print statistics of a database, level by level."`
	Tables     tablesCmd     `cmd:"" help:"Print a line for each table."`
	Filter     filterCmd     `cmd:"" help:"Inspect, build and size filters."`
	Shell      shellCmd      `cmd:"" help:"Run commands interactively, or from a script."`
	Browse     browseCmd     `cmd:"" help:"Show keys, tables, blocks and filters in a web browser."`
	Serve      serveCmd      `cmd:"" help:"Serve strings and RedisBloom filters over the Redis protocol."`
	Demo       demoCmd       `cmd:"" help:"Show what filters save, on Go's own source code."`

	VersionCommand versionCmd    `cmd:"" name:"version" help:"Print the version."`
	Completion     completionCmd `cmd:"" help:"Print a completion script for a shell."`
	Complete       completeCmd   `cmd:"" hidden:"" help:"Print the possible next words of a command line."`

	Version versionFlag `help:"Print the version and exit."`
}

const description = `sift works on LevelDB-compatible databases with one filter per table, which
answers most lookups of absent keys without reading from the disk.

Keys and values are text: \t \n \r and \\ stand for a tab, a line feed, a carriage
return and a backslash, and \xHH for any unprintable byte. Commands print and read this
form, or hexadecimal with --hex. Put -- before a key that begins with a dash, as in:
sift get db -- -key. In a flag, use an equals sign: sift scan --from=-key db.

Commands that only read open the database read-only, so several can run at once.

The exit status is 0 on success, 1 if a key does not exist, 2 if the command line is wrong,
and 3 if a command fails, is interrupted or finds damage. An interrupt ends serve and
browse with status 0.`

// The exit statuses.
const (
	statusOK       = 0
	statusNotFound = 1
	statusUsage    = 2
	statusFailed   = 3
)

// env is the environment of a command.
type env struct {
	ctx context.Context
	in  io.Reader
	out *bufio.Writer // flushed when the command is done
	err io.Writer
}

// exitStatus is a panic value: kong panics with it instead of ending the process, and run
// recovers it.
type exitStatus int

// run executes one command and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	e := &env{ctx: ctx, in: stdin, out: bufio.NewWriterSize(stdout, 64<<10), err: stderr}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exitStatus:
			status = int(p)
		default:
			panic(p)
		}
	}()
	var cli commands
	parser := kong.Must(&cli,
		kong.Name("sift"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 80}),
		kong.Writers(stdout, stderr),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error {
			c.Exit(e.fail(kong.DefaultHelpPrinter(o, c)))
			return nil
		}),
		kong.Exit(func(code int) { panic(exitStatus(code)) }),
		kong.Bind(e),
		kong.KindMapper(reflect.String, kong.MapperFunc(setString)),
		kong.Vars{"filter": filter.DefaultForFlush().Name() + " in level 0, " + filter.Default().Name() + " below"},
	)
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	command, err := parser.Parse(args)
	if err != nil {
		return e.fail(usage(usageError(err)))
	}
	err = command.Run(e)
	if ferr := e.out.Flush(); err == nil {
		err = ferr
	}
	return e.fail(err)
}

// setString sets a string to an argument, byte for byte. kong's mapper goes through JSON, which
// replaces what is not UTF-8.
func setString(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(token.String())
	}
	return err
}

// usageError adds a pointer to --help to a parse error.
func usageError(err error) error {
	name, command := "sift", false
	if p := (*kong.ParseError)(nil); errors.As(err, &p) && p.Context != nil {
		if node := p.Context.Selected(); node != nil {
			name, command = node.FullPath(), len(node.Children) == 0
		}
	}
	// EOL is how the parser reports a missing value, and "value" a type without a name.
	text := strings.NewReplacer(` but got "EOL" (<EOL>)`, ", got none", "expected value value", "expected a value").Replace(err.Error())
	if !command { // no command has been given yet
		text = strings.Replace(text, "unexpected argument", "unknown command", 1)
	}
	return fmt.Errorf("%s\nRun \"%s --help\" for usage", text, name)
}

// usage marks an error as a mistake on the command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &mistake{err}
}

// mistake is an error on the command line.
type mistake struct{ error }

func (m *mistake) Unwrap() error { return m.error }

// fail reports an error, if it is not nil, and returns the exit status.
func (e *env) fail(err error) int {
	switch {
	case err == nil || isBrokenPipe(err):
		// A closed pipe is not a failure: the reader needs no more output.
		return statusOK
	case errors.Is(err, errReported):
	case e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()):
		fmt.Fprintln(e.err, "sift:", strings.Replace(err.Error(), e.ctx.Err().Error(), "interrupted", 1))
	default:
		fmt.Fprintln(e.err, "sift:", strings.TrimPrefix(err.Error(), "sift: "))
	}
	switch {
	case errors.Is(err, errNoKey):
		return statusNotFound
	case errors.As(err, new(*mistake)):
		return statusUsage
	}
	if exit := exitError(0); errors.As(err, &exit) {
		return int(exit)
	}
	return statusFailed
}

// errReported ends a command that has already reported its failure.
var errReported = errors.New("reported")

// isBrokenPipe reports whether a write failed because the reader has closed the pipe.
func isBrokenPipe(err error) bool {
	return errors.Is(err, io.ErrClosedPipe) || errors.Is(err, syscall.EPIPE) ||
		runtime.GOOS == "windows" && (errors.Is(err, errBrokenPipe) || errors.Is(err, errNoData))
}

// The errors of Windows for a broken pipe: ERROR_BROKEN_PIPE and ERROR_NO_DATA.
const (
	errBrokenPipe = syscall.Errno(109)
	errNoData     = syscall.Errno(232)
)

// withDB opens a database, calls fn, and closes the database. Its warnings are printed
// unless o has a logger.
func (e *env) withDB(dir string, o sift.Options, fn func(db *sift.DB) error) (err error) {
	if o.Logger == nil {
		o.Logger = slog.New(&warnings{w: e.err})
	}
	db, err := sift.Open(dir, &o)
	if err != nil {
		return hint(err, dir)
	}
	if o.ReadOnly && len(db.Metrics().Recovery.Torn) > 0 {
		fmt.Fprintf(e.err, "The file is unchanged. The next write drops what was left out; before that, \"sift repair %s\" keeps what can be read.\n", dir)
	}
	defer func() {
		switch cerr := db.Close(); {
		case cerr == nil:
		case err == nil || isBrokenPipe(err): // a closed pipe is not a failure
			err = cerr
		case strings.Contains(err.Error(), cerr.Error()): // a write has failed with the same error
		default:
			err = errors.Join(err, cerr)
		}
	}()
	return hint(fn(db), dir)
}

// hint adds advice to an error that reports damage of the database, unless the error itself says
// what to do.
func hint(err error, dir string) error {
	switch {
	case err == nil || !errors.Is(err, sift.ErrCorruption):
		return err
	case errors.Is(err, manifest.ErrNothingToRepair) || errors.As(err, new(*inputError)):
		return err
	case errors.As(err, new(*filterDamage)):
		return fmt.Errorf("%w\n\"sift check %s\" lists all damage, \"sift filter build %s\" rebuilds damaged filters", err, dir, dir)
	}
	return fmt.Errorf("%w\n\"sift check %s\" lists all damage, \"sift repair %s\" rebuilds what can be read", err, dir, dir)
}

// readOnly opens a database for a command that only reads.
func (e *env) readOnly(dir string, fn func(db *sift.DB) error) error {
	return e.withDB(dir, sift.Options{ReadOnly: true}, fn)
}
