package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Layout is the version of the assets that this release wants. It grows when
// one of them changes, so that an older release leaves alone what a newer one
// has made.
const Layout = 3

// store is the version of all that the processes of a pool keep on the broker. It grows
// when a process of an older release would misread or damage what a newer one writes, or
// the other way round: no process works on a store of another version. What only adds to
// the assets counts as [Layout].
const store = 1

// What an asset says of itself, beside its configuration.
const (
	metaLayout = "penstock-layout"
	metaLease  = "penstock-lease"
	metaStore  = "penstock-store" // on the marker only; missing is version 1
)

// An Asset is a stream or a consumer as this release wants it. Buckets and
// object stores are streams of a certain form.
type Asset struct {
	Kind     string // stream, bucket, object store or consumer
	Name     string // as people know it: PS_EVENTS, ps_jobs, PS_SCHED/due
	Stream   jetstream.StreamConfig
	Consumer *jetstream.ConsumerConfig // nil for a stream; else of Stream only the name counts
	// Derived: what the stream has can be made again from others, so it may be lost.
	Derived bool
}

// leastWindow is the least time that the broker remembers message ids for.
const leastWindow = 100 * time.Millisecond

// StreamAsset is a stream on the disk.
func StreamAsset(cfg jetstream.StreamConfig) Asset {
	cfg.Storage, cfg.AllowDirect, cfg.Replicas = jetstream.FileStorage, true, max(1, cfg.Replicas)
	// Nothing here relies on message ids. With a longer window a client that uses
	// an id first would make the broker drop messages of others with the same id.
	cfg.Duplicates = leastWindow
	cfg.Metadata = map[string]string{metaLayout: strconv.Itoa(Layout)}
	return Asset{Kind: "stream", Name: cfg.Name, Stream: cfg}
}

// BucketAsset is a key-value bucket, in the form that every NATS client knows,
// with one exception: rollups are disabled. A header of one message would remove
// every key, and every client that may write one key could send it. The broker's
// markers of aged keys need rollups, so there are none of those either.
func BucketAsset(cfg jetstream.KeyValueConfig) Asset {
	a := StreamAsset(jetstream.StreamConfig{
		Name: "KV_" + cfg.Bucket, Subjects: []string{"$KV." + cfg.Bucket + ".>"},
		MaxMsgsPerSubject: int64(max(1, cfg.History)), MaxMsgSize: cfg.MaxValueSize, MaxAge: cfg.TTL, MaxBytes: cfg.MaxBytes,
		Discard: jetstream.DiscardNew, DenyDelete: true, RePublish: cfg.RePublish, Replicas: cfg.Replicas,
		AllowAtomicPublish: true, // for what is written at the same time
	})
	a.Kind, a.Name = "bucket", cfg.Bucket
	return a
}

// ObjectsAsset is an object store, in the form that every NATS client reads.
// Those that write roll up the description; see [BucketAsset].
func ObjectsAsset(cfg jetstream.ObjectStoreConfig) Asset {
	a := StreamAsset(jetstream.StreamConfig{
		Name: "OBJ_" + cfg.Bucket, Subjects: []string{"$O." + cfg.Bucket + ".C.>", "$O." + cfg.Bucket + ".M.>"},
		MaxAge: cfg.TTL, MaxBytes: cfg.MaxBytes, Discard: jetstream.DiscardNew, Replicas: cfg.Replicas,
	})
	a.Kind, a.Name = "object store", cfg.Bucket
	return a
}

// ConsumerAsset is a durable consumer with as many replicas as its stream.
func ConsumerAsset(stream string, cfg jetstream.ConsumerConfig) Asset {
	cfg.Name, cfg.AckPolicy = cfg.Durable, jetstream.AckExplicitPolicy
	cfg.Metadata = map[string]string{metaLayout: strconv.Itoa(Layout)}
	return Asset{Kind: "consumer", Name: stream + "/" + cfg.Durable, Stream: jetstream.StreamConfig{Name: stream}, Consumer: &cfg}
}

// Marked returns the asset with the installation's lease, and the version of its store,
// written on it.
func (a Asset) Marked(lease time.Duration) Asset {
	a.Stream.Metadata = maps.Clone(a.Stream.Metadata)
	a.Stream.Metadata[metaLease] = lease.String()
	a.Stream.Metadata[metaStore] = strconv.Itoa(store)
	return a
}

// Expiring returns the bucket as one whose messages may name a time to live.
func (a Asset) Expiring() Asset {
	a.Stream.AllowMsgTTL = true
	return a
}

// Compressed returns the stream as one whose full blocks the broker compresses. It reads
// and unpacks a whole block for one message, so this is for what is read seldom, or in order.
func (a Asset) Compressed() Asset {
	a.Stream.Compression = jetstream.S2Compression
	return a
}

// Unsynced returns the stream as one whose content can be made again: where one server
// keeps it, that server does not wait for its disk. Several wait for each other anyway, and
// the broker refuses it for them. A stream that changes between the two is made anew.
func (a Asset) Unsynced() Asset {
	a.Derived = true
	if a.Stream.Replicas == 1 {
		a.Stream.PersistMode = jetstream.AsyncPersistMode
	}
	return a
}

// A Field is one in which an asset is not as it is wanted.
type Field struct {
	Name       string
	Is, Wanted string
	Fixed      string // why the broker cannot change it; empty where it can
}

// plain is a configuration as the broker's API has it. Of what this program
// does not know nothing gets lost in it.
type plain map[string]any

func toPlain(v any) (plain, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fromJSON(data)
}

func fromJSON(data []byte) (p plain, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a float would round nanoseconds
	err = d.Decode(&p)
	return p, err
}

// wanted is the asset's configuration, and the names of the fields that this
// program knows.
func (a Asset) wanted() (want plain, known []string, err error) {
	var cfg any = a.Stream
	if a.Consumer != nil {
		cfg = *a.Consumer
	}
	for field := range reflect.TypeOf(cfg).Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" && name != "" {
			known = append(known, name)
		}
	}
	want, err = toPlain(cfg)
	return want, known, err
}

// free are fields that the operator of the broker may choose, unless this
// program sets them itself.
var free = []string{
	"name", "description", "placement", "compression", "max_bytes", "duplicate_window", "first_seq", "max_consumers",
	"consumer_limits", "max_waiting", "ack_wait", "pause_until", "metadata",
}

// compare returns the fields in which is differs from what is wanted.
func (a Asset) compare(is plain) ([]Field, error) {
	want, known, err := a.wanted()
	if err != nil {
		return nil, err
	}
	var fields []Field
	for _, name := range known {
		if unset(want[name]) && (unset(is[name]) || slices.Contains(free, name)) {
			continue
		}
		w, i := want[name], is[name]
		if name == "metadata" {
			w, i = ours(w), ours(i)
		}
		if !reflect.DeepEqual(w, i) {
			fields = append(fields, Field{name, words(name, i), words(name, w), a.fixed(name, is, want)})
		}
	}
	slices.SortFunc(fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return fields, nil
}

// unset reports whether a value is that of a field that was never set.
func unset(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case json.Number:
		return v == "0" || v == "-1"
	case string:
		return v == "" || v == "none" || v == "default"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// ours is the part of an asset's metadata that this program writes.
func ours(metadata any) any {
	kept := map[string]any{}
	all, _ := metadata.(map[string]any)
	for key, value := range all {
		if strings.HasPrefix(key, "penstock-") {
			kept[key] = value
		}
	}
	return kept
}

// periods are the fields that the broker counts in nanoseconds.
var periods = []string{"max_age", "duplicate_window", "subject_delete_marker_ttl", "ack_wait", "inactive_threshold", "max_expires", "priority_timeout"}

// words is a field's value for people.
func words(name string, v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	if unset(v) {
		return "none"
	}
	if n, ok := v.(json.Number); ok && slices.Contains(periods, name) {
		if ns, err := n.Int64(); err == nil {
			return time.Duration(ns).String()
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// persistMode is the field that says whether the broker waits for its disk.
const persistMode = "persist_mode"

// fixed says why the broker refuses to change a field of what exists.
func (a Asset) fixed(name string, is, want plain) string {
	const never = "the broker never changes it"
	switch {
	case a.Consumer != nil:
		if slices.Contains([]string{"deliver_policy", "ack_policy", "replay_policy", "max_waiting", "mem_storage", "flow_control", "idle_heartbeat", "opt_start_seq", "opt_start_time"}, name) {
			return never
		}
	case name == persistMode && a.Derived:
		return "" // it is made anew
	case slices.Contains([]string{"storage", "allow_msg_counter", persistMode}, name):
		return never
	case name == "retention" && (is[name] == "workqueue" || want[name] == "workqueue"):
		return "the broker never changes it to or from a work queue"
	case slices.Contains([]string{"sealed", "deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules"}, name) && unset(want[name]):
		return "the broker never takes it back"
	case name == "mirror" && !unset(want[name]):
		return never
	}
	return ""
}

// merged is what is there, with the fields that differ as they are wanted.
// What else is set, and what a newer broker knows, stays.
func (a Asset) merged(is plain, differ []Field) (plain, error) {
	want, _, err := a.wanted()
	if err != nil {
		return nil, err
	}
	next := maps.Clone(is)
	for _, field := range differ {
		if unset(want[field.Name]) {
			delete(next, field.Name)
			continue
		}
		next[field.Name] = want[field.Name]
	}
	next["metadata"] = mergeMetadata(is["metadata"], want["metadata"])
	return next, nil
}

func mergeMetadata(is, want any) map[string]any {
	next := map[string]any{}
	for _, from := range []any{is, want} {
		all, _ := from.(map[string]any)
		maps.Copy(next, all)
	}
	// The broker's own remarks; it writes them anew.
	maps.DeleteFunc(next, func(key string, _ any) bool { return strings.HasPrefix(key, "_nats.") })
	return next
}

// layoutOf is the version that an asset was made or last changed by.
func layoutOf(is plain) int {
	metadata, _ := is["metadata"].(map[string]any)
	text, _ := metadata[metaLayout].(string)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0 // of a release that wrote none
	}
	return n
}
