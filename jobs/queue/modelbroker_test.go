package queue_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

// A modelBroker keeps in memory what the queue asks of a broker, and speaks its
// protocol to real clients. A request that another process could notice, or
// whose answer depends on one, waits until the exploration lets it happen.
type modelBroker struct {
	mu       sync.Mutex
	lease    time.Duration
	streams  map[string]*modelStream
	links    []*modelLink
	arrived  chan struct{} // something waits
	breaks   mutation
	free     bool // nothing waits: for the comparison with a real broker
	wrote    func(l *modelLink, before, after *modelMsg)
	acked    func(l *modelLink, s *modelStream)
	consumer uint64
}

// A modelStream holds one message a subject.
type modelStream struct {
	name  string
	last  uint64
	msgs  []*modelMsg
	queue bool // refuses a second message of a subject
}

type modelMsg struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
	at      time.Time
	given   int       // how often it was delivered
	again   time.Time // when it is delivered again
}

// A modelLink is the connection of one process.
type modelLink struct {
	b       *modelBroker
	name    string
	conn    net.Conn
	out     chan []byte
	subs    map[string]string // subject by id
	waiting []modelRequest
	dead    atomic.Bool
	history uint64 // what this process has asked and heard
	holds   string // where the message is acknowledged that it was given last
}

type modelRequest struct {
	subject, reply string
	header         nats.Header
	data           []byte
}

func newModelBroker(lease time.Duration) *modelBroker {
	b := &modelBroker{lease: lease, streams: map[string]*modelStream{}, arrived: make(chan struct{}, 1)}
	b.wrote = func(*modelLink, *modelMsg, *modelMsg) {}
	b.acked = func(*modelLink, *modelStream) {}
	return b
}

// link returns a connection, and how to dial it.
func (b *modelBroker) link(name string, wg *sync.WaitGroup) (*modelLink, nats.Option) {
	ours, theirs := net.Pipe()
	l := &modelLink{b: b, name: name, conn: ours, out: make(chan []byte, 1<<10), subs: map[string]string{}}
	b.links = append(b.links, l)
	l.send("INFO {\"server_id\":\"model\",\"version\":\"2.15.0\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n")
	wg.Go(func() {
		defer close(l.out)
		l.read()
	})
	wg.Go(func() {
		for data := range l.out {
			_, _ = ours.Write(data) // a client that has gone hears nothing
		}
	})
	return l, nats.SetCustomDialer(modelDialer{theirs})
}

type modelDialer struct{ net.Conn }

func (d modelDialer) Dial(string, string) (net.Conn, error) { return d.Conn, nil }

func (l *modelLink) send(text string) { l.out <- []byte(text) }

func (l *modelLink) read() {
	r := bufio.NewReader(l.conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch strings.ToUpper(words[0]) {
		case "PING":
			l.send("PONG\r\n")
		case "SUB":
			l.b.mu.Lock()
			l.subs[words[len(words)-1]] = words[1]
			l.b.mu.Unlock()
		case "UNSUB":
			if len(words) == 2 {
				l.b.mu.Lock()
				delete(l.subs, words[1])
				l.b.mu.Unlock()
			}
		case "PUB", "HPUB":
			m, err := modelPublish(r, words)
			if err != nil {
				return
			}
			l.b.receive(l, m)
		}
	}
}

func modelPublish(r *bufio.Reader, words []string) (modelRequest, error) {
	m := modelRequest{subject: words[1]}
	sizes := words[2:]
	if headers := strings.EqualFold(words[0], "HPUB"); headers && len(sizes) == 3 || !headers && len(sizes) == 2 {
		m.reply, sizes = sizes[0], sizes[1:]
	}
	total, err := strconv.Atoi(sizes[len(sizes)-1])
	if err != nil {
		return m, err
	}
	body := make([]byte, total+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, err
	}
	body = body[:total]
	if len(sizes) == 2 {
		n, err := strconv.Atoi(sizes[0])
		if err != nil {
			return m, err
		}
		if m.header, err = nats.DecodeHeadersMsg(body[:n]); err != nil {
			return m, err
		}
		body = body[n:]
	}
	m.data = body
	return m, nil
}

// receive takes a request from a client's connection.
func (b *modelBroker) receive(l *modelLink, m modelRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.dead.Load() {
		return
	}
	if b.free || !b.matters(m) {
		b.do(l, m, true)
		return
	}
	l.waiting = append(l.waiting, b.breaks.before(l, m)...)
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// matters reports whether it makes a difference when a request happens.
func (b *modelBroker) matters(m modelRequest) bool {
	switch verb := m.subject; {
	case strings.Contains(verb, "MSG.NEXT."):
		s, consumer := b.consumerOf(verb)
		return s.next(consumer, time.Now()) != nil
	case strings.HasPrefix(verb, "$JS.API."):
		return strings.Contains(verb, "KV_ps_jobs") || strings.Contains(verb, "PS_Q_") || strings.Contains(verb, "PS_SCHED")
	case strings.HasPrefix(verb, "$KV."):
		return strings.HasPrefix(verb, "$KV.ps_jobs.")
	}
	return strings.HasPrefix(m.subject, "$JS.ACK.") || b.streamOf(m.subject) != nil
}

// do lets a request happen, and says in words what came of it.
func (b *modelBroker) do(l *modelLink, m modelRequest, answered bool) string {
	b.fire(time.Now())
	var what string
	var answer any
	switch words := strings.Split(m.subject, "."); {
	case strings.HasPrefix(m.subject, "$JS.ACK."):
		what = b.acknowledge(l, words, string(m.data))
		answer = ""
	case strings.HasPrefix(m.subject, "$JS.API.CONSUMER.MSG.NEXT."):
		return b.deliver(l, m, answered)
	case strings.HasPrefix(m.subject, "$JS.API.DIRECT.GET.") && len(words) > 5:
		return b.direct(l, m, b.stream(words[4]).lastOf(strings.Join(words[5:], ".")), answered)
	case strings.HasPrefix(m.subject, "$JS.API.DIRECT.GET."):
		return b.scan(l, m, b.stream(words[4]), answered)
	case strings.HasPrefix(m.subject, "$JS.API."):
		what, answer = b.ask(m, words)
	case b.streamOf(m.subject) != nil:
		what, answer = b.store(l, b.streamOf(m.subject), m)
	default:
		b.tell(m.subject, m.data)
		return "told"
	}
	l.note(m, what)
	if answered && m.reply != "" {
		text, ok := answer.(string)
		if !ok {
			data, _ := json.Marshal(answer) // maps of plain values
			text = string(data)
		}
		b.reply(l, m.reply, "", nil, text)
	}
	return what
}

// stream returns a stream, made on first use.
func (b *modelBroker) stream(name string) *modelStream {
	if b.streams[name] == nil {
		b.streams[name] = &modelStream{name: name, queue: strings.HasPrefix(name, "PS_Q_")}
	}
	return b.streams[name]
}

// streamOf returns the stream that keeps a subject, if one does.
func (b *modelBroker) streamOf(subject string) *modelStream {
	words := strings.Split(subject, ".")
	switch {
	case words[0] == "$KV":
		return b.stream("KV_" + words[1])
	case len(words) < 4 || words[0] != "penstock":
		return nil
	case words[2] == "q":
		return b.stream("PS_Q_" + strings.ToUpper(words[3]+"_"+words[4]))
	case words[2] == "sched" || words[2] == "due":
		return b.stream("PS_SCHED")
	case words[2] == "dead":
		return b.stream("PS_DEAD")
	}
	return nil
}

func (s *modelStream) lastOf(filter string) *modelMsg {
	var last *modelMsg
	for _, m := range s.msgs {
		if modelMatch(filter, m.subject) {
			last = m
		}
	}
	return last
}

func (s *modelStream) remove(m *modelMsg) {
	s.msgs = slices.DeleteFunc(s.msgs, func(o *modelMsg) bool { return o == m })
}

// modelMatch matches a subject against one with wildcards.
func modelMatch(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, word := range f {
		if word == ">" {
			return len(s) > i
		}
		if i >= len(s) || word != "*" && word != s[i] {
			return false
		}
	}
	return len(f) == len(s)
}

func modelError(code, errCode int, text string) any {
	return map[string]any{"error": map[string]any{"code": code, "err_code": errCode, "description": text}}
}

// store keeps a message, unless it expected something else there.
func (b *modelBroker) store(l *modelLink, s *modelStream, m modelRequest) (string, any) {
	last, expect := s.lastOf(m.subject), m.header.Get("Nats-Expected-Last-Subject-Sequence")
	var at uint64
	if last != nil {
		at = last.seq
	}
	if expect != "" && expect != strconv.FormatUint(at, 10) {
		if b.breaks == ackAnyway && l.holds != "" && m.isRecord() && m.record().State == jobs.Finished {
			b.acknowledge(l, strings.Split(l.holds, "."), "+ACK")
		}
		return "conflict", modelError(400, 10071, fmt.Sprintf("wrong last sequence: %d", at))
	}
	if b.breaks == silentBeats && m.isRecord() && m.record().Beat > 1 {
		return "not stored", map[string]any{"stream": s.name, "seq": at}
	}
	if last != nil && s.queue {
		return "refused", modelError(503, 10077, "maximum messages per subject exceeded")
	}
	if last != nil {
		s.remove(last)
	}
	s.last++
	next := &modelMsg{seq: s.last, subject: m.subject, header: m.header, data: m.data, at: time.Now()}
	s.msgs = append(s.msgs, next)
	b.wrote(l, last, next)
	if words := strings.Split(m.subject, "."); s.queue {
		b.tell(strings.Join(append([]string{words[0], words[1], "wake"}, words[3:]...), "."), nil)
	}
	return fmt.Sprint("stored ", next.seq), map[string]any{"stream": s.name, "seq": next.seq}
}

// fire moves the schedules whose time has come.
func (b *modelBroker) fire(now time.Time) {
	s := b.stream("PS_SCHED")
	for _, m := range slices.Clone(s.msgs) {
		at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.header.Get("Nats-Schedule"), "@at "))
		if err != nil || now.Before(at) {
			continue
		}
		s.remove(m)
		if old := s.lastOf(m.header.Get("Nats-Schedule-Target")); old != nil {
			s.remove(old)
		}
		s.last++
		s.msgs = append(s.msgs, &modelMsg{seq: s.last, subject: m.header.Get("Nats-Schedule-Target"), data: m.data, at: now})
	}
}

func (b *modelBroker) consumerOf(verb string) (*modelStream, string) {
	words := strings.Split(verb, ".")
	return b.stream(words[len(words)-2]), words[len(words)-1]
}

// next is what a consumer delivers now.
func (s *modelStream) next(consumer string, now time.Time) *modelMsg {
	for _, m := range s.msgs {
		if (consumer != "due" || strings.Contains(m.subject, ".due.")) && (m.given == 0 || !now.Before(m.again)) {
			return m
		}
	}
	return nil
}

func (b *modelBroker) deliver(l *modelLink, m modelRequest, answered bool) string {
	s, consumer := b.consumerOf(m.subject)
	msg := s.next(consumer, time.Now())
	if msg == nil {
		l.note(m, "nothing")
		if answered {
			b.reply(l, m.reply, "404 No Messages", nil, "")
		}
		return "nothing"
	}
	msg.given++
	msg.again = time.Now().Add(b.wait(s.name))
	b.consumer++
	ack := fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.0", s.name, consumer, msg.given, msg.seq, b.consumer, msg.at.UnixNano())
	what := fmt.Sprintf("given for the %d. time", msg.given)
	l.note(m, what)
	l.holds = ack
	if answered {
		b.deliverTo(l, m.reply, fmt.Sprintf("%s %%s %s", msg.subject, ack), string(msg.data))
	}
	return what
}

func (b *modelBroker) wait(stream string) time.Duration {
	if stream == "PS_SCHED" {
		return 30 * time.Second
	}
	return b.lease
}

// acknowledge does what a word about a message asks for. As the broker does,
// it does not ask who says it.
func (b *modelBroker) acknowledge(l *modelLink, words []string, body string) string {
	s := b.stream(words[2])
	i := slices.IndexFunc(s.msgs, func(m *modelMsg) bool { return strconv.FormatUint(m.seq, 10) == words[5] })
	if i < 0 {
		return "nothing there"
	}
	msg, now := s.msgs[i], time.Now()
	switch verb, rest, _ := strings.Cut(body, " "); verb {
	case "+ACK", "+TERM":
		b.acked(l, s)
		s.remove(msg)
	case "+WPI":
		if now.Before(msg.again) { // else it is on its way to another process
			msg.again = now.Add(b.wait(s.name))
		}
	case "-NAK":
		var ask struct{ Delay time.Duration }
		_ = json.Unmarshal([]byte(rest), &ask) // without a delay it is at once
		if now.Before(msg.again) {
			msg.again = now.Add(ask.Delay)
		}
	}
	return "done"
}

// ask answers a request to the broker's own API.
func (b *modelBroker) ask(m modelRequest, words []string) (string, any) {
	var body struct {
		Last   string `json:"last_by_subj"`
		Filter string `json:"filter"`
	}
	_ = json.Unmarshal(m.data, &body) // some have none
	switch verb := strings.Join(words[2:len(words)-1], "."); verb {
	case "STREAM.MSG.GET":
		msg := b.stream(words[5]).lastOf(body.Last)
		if msg == nil {
			return "not found", modelError(404, 10037, "no message found")
		}
		return fmt.Sprint("read ", msg.seq), map[string]any{"message": map[string]any{
			"subject": msg.subject, "seq": msg.seq, "hdrs": modelHeader("NATS/1.0", msg.header), "data": msg.data, "time": msg.at,
		}}
	case "STREAM.PURGE":
		s := b.stream(words[4])
		before := len(s.msgs)
		s.msgs = slices.DeleteFunc(s.msgs, func(o *modelMsg) bool { return modelMatch(body.Filter, o.subject) })
		return fmt.Sprint("purged ", before-len(s.msgs)), map[string]any{"success": true, "purged": before - len(s.msgs)}
	case "STREAM.INFO":
		subjects := map[string]int{}
		for _, o := range b.stream(words[4]).msgs {
			subjects[o.subject] = 1
		}
		return fmt.Sprint("holds ", len(subjects)), map[string]any{"ts": b.clock(), "total": len(subjects), "state": map[string]any{"subjects": subjects}}
	case "CONSUMER.INFO." + words[len(words)-2]:
		return "told the time", map[string]any{"ts": b.clock(), "config": map[string]any{"ack_wait": b.lease}}
	}
	return "info", map[string]any{"storage": 0, "limits": map[string]any{"max_storage": -1}}
}

func (b *modelBroker) clock() time.Time {
	if b.breaks == clockAhead {
		return time.Now().Add(time.Hour)
	}
	return time.Now()
}

// scan sends the messages of a range.
func (b *modelBroker) scan(l *modelLink, m modelRequest, s *modelStream, answered bool) string {
	var body struct {
		From   uint64 `json:"seq"`
		Filter string `json:"next_by_subj"`
	}
	_ = json.Unmarshal(m.data, &body) // always this package's
	what := "scanned"
	for _, msg := range s.msgs {
		if msg.seq < body.From || !modelMatch(body.Filter, msg.subject) {
			continue
		}
		what += fmt.Sprint(" ", msg.seq)
		if answered {
			b.replyStored(l, m.reply, msg)
		}
	}
	l.note(m, what)
	if answered {
		b.reply(l, m.reply, "204 EOB", nil, "")
	}
	return what
}

// direct answers a direct get of the last message of a subject.
func (b *modelBroker) direct(l *modelLink, m modelRequest, msg *modelMsg, answered bool) string {
	what := "not there"
	if msg != nil {
		what = fmt.Sprint("read ", msg.seq)
	}
	l.note(m, what)
	switch {
	case !answered:
	case msg == nil:
		b.reply(l, m.reply, "404 Message Not Found", nil, "")
	default:
		b.replyStored(l, m.reply, msg)
	}
	return what
}

func (b *modelBroker) replyStored(l *modelLink, to string, msg *modelMsg) {
	b.reply(l, to, " ", nats.Header{
		"Nats-Subject": {msg.subject}, "Nats-Sequence": {strconv.FormatUint(msg.seq, 10)},
		"Nats-Time-Stamp": {msg.at.Format(time.RFC3339Nano)},
	}, string(msg.data))
}

func modelHeader(status string, h nats.Header) []byte {
	text := strings.TrimRight(status, " ") + "\r\n"
	for name, values := range h {
		text += textproto.TrimString(name) + ": " + values[0] + "\r\n"
	}
	return []byte(text + "\r\n")
}

// reply sends a message to the subscription of the link that waits for it.
func (b *modelBroker) reply(l *modelLink, subject, status string, h nats.Header, data string) {
	if status == "" {
		b.deliverTo(l, subject, subject+" %s", data)
		return
	}
	head := modelHeader("NATS/1.0 "+status, h)
	for id, filter := range l.subs {
		if modelMatch(filter, subject) {
			l.send(fmt.Sprintf("HMSG %s %s %d %d\r\n%s%s\r\n", subject, id, len(head), len(head)+len(data), head, data))
		}
	}
}

func (b *modelBroker) deliverTo(l *modelLink, inbox, frame, data string) {
	for id, filter := range l.subs {
		if modelMatch(filter, inbox) {
			l.send(fmt.Sprintf("MSG "+frame+" %d\r\n%s\r\n", id, len(data), data))
		}
	}
}

// tell sends a message that is not stored to all its subscribers.
func (b *modelBroker) tell(subject string, data []byte) {
	for _, l := range b.links {
		if !l.dead.Load() {
			b.reply(l, subject, "", nil, string(data))
		}
	}
}
