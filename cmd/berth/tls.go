package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// TLSFlags say whom a command believes to be Berth, and with which certificate it
// shows who calls. They are of every command that calls a Berth, and nothing else
// makes the connections of these.
type TLSFlags struct {
	CA      string `name:"ca" env:"BERTH_CA" type:"path" placeholder:"FILE" help:"CA file (PEM): Berth's certificate must be of it, instead of one of the system's CAs."`
	Cert    string `name:"cert" env:"BERTH_CERT" type:"path" placeholder:"FILE" help:"Certificate file (PEM) of the caller, for a Berth that asks for one."`
	CertKey string `name:"cert-key" env:"BERTH_CERT_KEY" type:"path" placeholder:"FILE" help:"Key file (PEM) of --cert."`
}

// client makes calls as the flags say. Errors of its connections say which flag
// helps.
func (f *TLSFlags) client() (*http.Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	t := &explained{flags: f, own: new(tls.Certificate)}
	if len(config.Certificates) > 0 {
		t.own = &config.Certificates[0]
	}
	config.GetClientCertificate = t.show
	t.calls = &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64,
	}
	return &http.Client{Transport: t}, nil
}

func (f *TLSFlags) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case f.Cert != "" && f.CertKey == "":
		return nil, errors.New("--cert needs --cert-key, the file of its key")
	case f.Cert == "" && f.CertKey != "":
		return nil, errors.New("--cert-key needs --cert, the file of the certificate")
	case f.Cert != "":
		pair, err := tls.LoadX509KeyPair(f.Cert, f.CertKey)
		if err != nil {
			return nil, fmt.Errorf("--cert %s with --cert-key %s: %w", f.Cert, f.CertKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if f.CA == "" {
		return config, nil
	}
	var err error
	if config.RootCAs, err = readCAs(f.CA); err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	return config, nil
}

// readCAs reads a file of certificates.
func readCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return pool, nil
}

// tlsError is a connection that waiting does not mend: a flag does.
type tlsError struct {
	says string
	err  error
}

func (e *tlsError) Error() string {
	if e.err == nil {
		return e.says
	}
	return fmt.Sprintf("%s (%v)", e.says, e.err)
}

func (e *tlsError) Unwrap() error { return e.err }

// explained makes calls, and adds to what fails for want of a flag what would help.
type explained struct {
	flags *TLSFlags
	calls *http.Transport
	own   *tls.Certificate // empty: none

	// Whether a server asked for a certificate, and whether it took what it was
	// shown. A refusal comes after the handshake, and it is up to chance whether its
	// words can be read or the connection has ended before.
	asked, taken atomic.Bool
}

// show answers a server that asks for a certificate.
func (t *explained) show(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	t.asked.Store(true)
	return t.own, nil
}

// RoundTrip makes one call.
func (t *explained) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.calls.RoundTrip(r)
	if err != nil {
		if says := t.explain(err); says != "" && r.Context().Err() == nil {
			return nil, &tlsError{says: says, err: err}
		}
		return nil, err
	}
	if r.URL.Scheme == "http" && wantsTLS(resp) {
		return nil, &tlsError{says: "it speaks TLS: its URL begins with https://"}
	}
	t.taken.Store(true)
	return resp, nil
}

// CloseIdleConnections is for http.Client's.
func (t *explained) CloseIdleConnections() { t.calls.CloseIdleConnections() }

func (t *explained) explain(err error) string {
	var unverified *tls.CertificateVerificationError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var broken *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return "it does not speak TLS: its URL begins with http://"
	case errors.As(err, &name):
		return "its certificate is of another name than its URL"
	case errors.As(err, &invalid):
		return "" // an expired one, say: no flag helps
	case errors.As(err, &unverified) && t.flags.CA == "":
		return "its certificate is of no CA that is trusted here: --ca names the file of its CA"
	case errors.As(err, &unverified):
		return "its certificate is not of the CA in --ca " + t.flags.CA
	case !t.asked.Load() || t.taken.Load() || errors.As(err, &broken) && broken.Op == "dial":
		return ""
	case t.flags.Cert == "":
		return "it asks for a certificate of the caller: --cert and --cert-key name one"
	}
	return "it does not take the certificate in --cert " + t.flags.Cert
}

// wantsTLS reports whether an answer is what Go's server says to who does not speak
// TLS with it: a line, and no header. It has read the answer then.
func wantsTLS(resp *http.Response) bool {
	if resp.StatusCode != http.StatusBadRequest || len(resp.Header) > 0 {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	line, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	return err == nil && strings.Contains(string(line), "HTTPS server")
}
