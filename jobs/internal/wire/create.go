package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-run/penstock/jobs"
)

// Assets are the streams, buckets and consumers on the broker: what they are, and what
// makes and changes them.
type Assets struct{ c *Conn }

// Assets returns those of the connection's broker.
func (c *Conn) Assets() Assets { return Assets{c} }

// Ensure creates an asset. One that exists is taken as it is, unless upgrade
// is set: a client with other settings must not change a running pool. What a
// newer release has made is never changed so. A bound connection makes nothing.
func (s Assets) Ensure(ctx context.Context, a Asset, upgrade bool) error {
	if s.c.Bound {
		return nil
	}
	if there, err := s.consumes(ctx, a); err != nil {
		return err
	} else if !there {
		if err := s.create(ctx, a); !exists(err) {
			return err
		}
	}
	if !upgrade {
		return nil
	}
	fields, layout, err := s.Compare(ctx, a)
	if err != nil || len(fields) == 0 || layout > Layout {
		return err
	}
	return s.Change(ctx, a, fields)
}

// EnsureAll is Ensure for all that a part of an installation has, which want lists once it
// knows what is written on the installation's marker: see [Assets.Installed]. Both, and what
// exists, are asked for at once, and the rest is done at once, so that it takes a few round
// trips and not one for each: streams first, since consumers are made on them.
func (s Assets) EnsureAll(ctx context.Context, marker string, want func(has Installed) []Asset, upgrade bool) error {
	var names []string
	var unlisted error
	var asking sync.WaitGroup
	defer asking.Wait()
	listing, cancel := context.WithCancel(ctx)
	defer cancel() // a store that is refused is not waited for
	if !s.c.Bound {
		asking.Go(func() { names, unlisted = s.Streams(listing) })
	}
	has, err := s.Installed(ctx, marker)
	if err != nil {
		return err
	}
	all := want(has)
	if asking.Wait(); unlisted != nil {
		return unlisted
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	var streams, consumers []Asset
	for _, a := range all {
		switch {
		case a.Consumer != nil:
			consumers = append(consumers, a)
		case upgrade || !there[a.Stream.Name]:
			streams = append(streams, a)
		}
	}
	for _, some := range [][]Asset{streams, consumers} {
		if err := s.ensureAtOnce(ctx, some, upgrade); err != nil {
			return err
		}
	}
	return nil
}

func (s Assets) ensureAtOnce(ctx context.Context, all []Asset, upgrade bool) error {
	errs := make([]error, len(all))
	var asking sync.WaitGroup
	for i, a := range all {
		asking.Go(func() { errs[i] = s.Ensure(ctx, a, upgrade) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

// consumes reports whether an asset is a consumer that exists. To create one
// again writes to the broker's disk, which may be full.
func (s Assets) consumes(ctx context.Context, a Asset) (bool, error) {
	if a.Consumer == nil {
		return false, nil
	}
	_, err := s.config(ctx, a)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (s Assets) create(ctx context.Context, a Asset) error {
	cfg, _, err := a.wanted()
	if err != nil {
		return err
	}
	if err := s.send(ctx, a, cfg, "create"); err != nil {
		return fmt.Errorf("create %s %s: %w", a.Kind, a.Name, err)
	}
	return nil
}

// Compare returns the fields in which an asset is not as it is wanted, and by
// which version of the layout it was made. An asset that does not exist is
// [jobs.ErrNotFound].
func (s Assets) Compare(ctx context.Context, a Asset) (fields []Field, layout int, err error) {
	is, err := s.config(ctx, a)
	if err != nil {
		return nil, 0, err
	}
	fields, err = a.compare(is)
	return fields, layoutOf(is), err
}

// Change changes an asset that exists in the fields that differ, and in no
// other. It may be repeated.
func (s Assets) Change(ctx context.Context, a Asset, fields []Field) error {
	if a.Derived && slices.ContainsFunc(fields, func(f Field) bool { return f.Name == persistMode }) {
		return s.remake(ctx, a)
	}
	is, err := s.config(ctx, a)
	if err != nil {
		return err
	}
	next, err := a.merged(is, fields)
	if err != nil {
		return err
	}
	if err := s.send(ctx, a, next, "update"); err != nil {
		return fmt.Errorf("change %s %s: %w", a.Kind, a.Name, err)
	}
	return nil
}

// remake makes a stream anew, empty and without its consumers.
func (s Assets) remake(ctx context.Context, a Asset) error {
	err := s.c.askWithin(ctx, 5*Patience, "STREAM.DELETE."+a.Stream.Name, nil, &struct{}{})
	if err != nil && !NoStream(err) {
		return fmt.Errorf("remove %s %s, to make it anew: %w", a.Kind, a.Name, err)
	}
	if err := s.create(ctx, a); !exists(err) {
		return err
	}
	return nil
}

// config is an asset's configuration as the broker has it.
func (s Assets) config(ctx context.Context, a Asset) (plain, error) {
	verb := "STREAM.INFO." + a.Stream.Name
	if a.Consumer != nil {
		verb = "CONSUMER.INFO." + a.Stream.Name + "." + a.Consumer.Durable
	}
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	err := s.c.Ask(ctx, verb, nil, &info)
	if err == nil {
		return fromJSON(info.Config)
	}
	if NoStream(err) || NoConsumer(err) {
		err = jobs.ErrNotFound
	}
	return nil, fmt.Errorf("look at %s %s: %w", a.Kind, a.Name, err)
}

// send asks the broker to create or update an asset. To create what is there
// with the same configuration, or to update it to what it is, is no error.
func (s Assets) send(ctx context.Context, a Asset, cfg plain, action string) error {
	verb, body := map[string]string{"create": "STREAM.CREATE.", "update": "STREAM.UPDATE."}[action]+a.Stream.Name, cfg
	if a.Consumer != nil {
		verb = "CONSUMER.CREATE." + a.Stream.Name + "." + a.Consumer.Durable
		if a.Consumer.FilterSubject != "" {
			verb += "." + a.Consumer.FilterSubject
		}
		body = plain{"stream_name": a.Stream.Name, "config": cfg, "action": action}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	// A consumer or a stream is several files, on each of the brokers.
	return s.c.askWithin(ctx, 5*Patience, verb, data, &struct{}{})
}

func exists(err error) bool {
	e, ok := errors.AsType[*APIError](err)
	return ok && (e.ErrCode == codeStreamExists || e.ErrCode == codeConsumerExists || e.ErrCode == codeConsumerThere)
}
