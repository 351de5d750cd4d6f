package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/siftdb/sift/cluster/siftd"
)

// backup backs up a running cluster.
func backup(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("siftd backup", flag.ContinueOnError)
	pages := f.String("http", "", "the nodes' --http addresses, separated by commas; if the nodes have --tls-cert, begin each with https:// or set --tls-ca")
	to := f.String("to", "", "create this directory, and write the backup there")
	passwordFile := f.String("password-file", "", "read the password from the first line of this file; default: the environment variable SIFT_PASSWORD")
	ca := f.String("tls-ca", "", "the authority that signs the certificates for clients; default: the system's")
	if err := f.Parse(args); err != nil {
		return usageError{err}
	}
	if *pages == "" || *to == "" || f.NArg() > 0 {
		return usageError{errors.New("backup requires --http and --to, and takes no arguments")}
	}
	from := siftd.BackupSource{Password: os.Getenv("SIFT_PASSWORD")}
	if *passwordFile != "" {
		if from.Password, err = readPassword(*passwordFile); err != nil {
			return err
		}
	}
	scheme := "http://"
	if *ca != "" {
		scheme = "https://"
		pool, err := authority(*ca)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w", err)
		}
		from.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	}
	for page := range strings.SplitSeq(*pages, ",") {
		if !strings.Contains(page, "://") {
			page = scheme + page
		}
		from.Pages = append(from.Pages, page)
	}
	return siftd.Backup(ctx, from, *to)
}
