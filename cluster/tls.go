package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TLS is what ListenTLS needs.
type TLS struct {
	// Certificate is the node's, as a server and as a client.
	Certificate tls.Certificate
	// Authority signs the nodes' certificates. It should sign no others: whoever has
	// one is a member.
	Authority *x509.CertPool
}

// ListenTLS is ListenTCP with encryption, and mutual authentication: a connection is
// accepted from whoever has a certificate of the authority, and made to a node whose
// certificate names the host of its address.
func ListenTLS(address, advertise string, t TLS, logger hclog.Logger) (raft.Transport, error) {
	if t.Authority == nil || len(t.Certificate.Certificate) == 0 {
		return nil, errors.New("cluster: a certificate and an authority are needed")
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	known := ln.Addr()
	if advertise != "" {
		addr, err := net.ResolveTCPAddr("tcp", advertise)
		if err != nil {
			return nil, errors.Join(err, ln.Close())
		}
		known = addr
	}
	server, client := t.configs()
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	layer := &tlsLayer{Listener: tls.NewListener(ln, server), known: known, client: client}
	return raft.NewNetworkTransportWithLogger(layer, 3, requestTimeout, logger), nil
}

// configs returns what a node uses as a server and as a client.
func (t *TLS) configs() (server, client *tls.Config) {
	own := []tls.Certificate{t.Certificate}
	return &tls.Config{Certificates: own, ClientCAs: t.Authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
		&tls.Config{Certificates: own, RootCAs: t.Authority, MinVersion: tls.VersionTLS13}
}

// tlsLayer is a raft.StreamLayer.
type tlsLayer struct {
	net.Listener
	known  net.Addr
	client *tls.Config
}

func (l *tlsLayer) Addr() net.Addr { return l.known }

func (l *tlsLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", string(address), l.client)
}
