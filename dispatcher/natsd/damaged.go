package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// startWhole is startOn that takes no damaged state of a consumer for the end of it. A server
// writes that state without a sync where the stream is not synced, and a power cut may tear
// it. The server leaves such a consumer out, and refuses to make it: nothing takes jobs of
// its lane any more (nats-server 2.15.2, "error creating store for consumer"). Without
// its state it begins anew: what it had handed out, and was not acknowledged, comes again.
func (s *Server) startWhole(host string, log *logger) (*server.Server, error) {
	srv, err := s.startOn(host, log)
	if err != nil {
		return nil, err
	}
	damaged, err := leftOut(s.cfg.StoreDir, srv)
	if err == nil && len(damaged) == 0 {
		return srv, nil
	}
	stop(srv)
	for _, state := range damaged {
		s.cfg.Logger.Error("the state of a consumer is damaged, as by a power cut; it begins anew", "file", state)
		err = errors.Join(err, os.Remove(state))
	}
	if err != nil {
		return nil, fmt.Errorf("look for consumers that were left out: %w", err)
	}
	return s.startOn(host, log)
}

// leftOut returns the files with the states of consumers that a server has not opened, although
// it has their streams.
func leftOut(dir string, srv *server.Server) ([]string, error) {
	info, err := details(srv, server.JSzOptions{Consumer: true})
	if err != nil {
		return nil, err
	}
	open := map[string]bool{} // consumers, and the streams of all
	for _, acc := range info.AccountDetails {
		for _, str := range acc.Streams {
			stream := path.Join(stored, acc.Name, "streams", str.Name, "obs")
			open[stream] = true
			for _, c := range str.Consumer {
				open[path.Join(stream, c.Name)] = true
			}
		}
	}
	states, err := fs.Glob(os.DirFS(dir), stored+"/*/streams/*/obs/*/o.dat")
	var left []string
	for _, state := range states {
		if consumer := path.Dir(state); open[path.Dir(consumer)] && !open[consumer] {
			left = append(left, filepath.Join(dir, filepath.FromSlash(state)))
		}
	}
	return left, err
}
