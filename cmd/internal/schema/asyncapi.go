package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/operation"
)

// AsyncAPI returns what programs exchange with a pool over the bus as a document of
// AsyncAPI 3.0: the subjects, the messages on them, and what the pool does with each. It
// is written from the pool's side: what the pool receives, a program sends.
func AsyncAPI() ([]byte, error) {
	d, err := newDefinitions()
	if err != nil {
		return nil, err
	}
	a := asyncAPI{definitions: d, channels: object{}, operations: object{}, messages: object{}}
	a.submissions()
	if err := a.events(); err != nil {
		return nil, err
	}
	if err := a.requests(); err != nil {
		return nil, err
	}
	schemas := object{}
	for name, part := range d.parts {
		schemas[name] = part
	}
	document, err := json.MarshalIndent(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Penstock", "version": "1", "license": object{"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
			"description": "A worker pool for coding agents, over NATS. What the pool receives, a program sends. The first two words of each subject are the pool's prefix, which an operator may have changed.",
		},
		"servers":            object{"pool": object{"host": "127.0.0.1:4222", "protocol": "nats", "description": "The broker of penstock serve, by its default address, or the NATS server that it was given."}},
		"defaultContentType": "application/json",
		"channels":           a.channels,
		"operations":         a.operations,
		"components":         object{"messages": a.messages, "schemas": schemas},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(bytes.ReplaceAll(document, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), '\n'), nil
}

// asyncAPI are the parts of the document, as they are made.
type asyncAPI struct {
	*definitions
	channels, operations, messages object
}

func reference(parts ...string) object {
	path := "#"
	for _, part := range parts {
		path += "/" + part
	}
	return object{"$ref": path}
}

// channel adds one whose messages are among the components by their names.
func (a *asyncAPI) channel(name string, address any, about string, messages ...string) object {
	refs := object{}
	for _, message := range messages {
		refs[message] = reference("components", "messages", message)
	}
	channel := object{"address": address, "description": about, "messages": refs}
	a.channels[name] = channel
	return channel
}

// operation says what the pool does with all messages of a channel.
func (a *asyncAPI) operation(name, action, channel, about string) object {
	o := object{"action": action, "channel": reference("channels", channel), "summary": about}
	a.operations[name] = o
	return o
}

// headers is the schema of headers of a message, by their names.
func headers(about map[string]string) object {
	properties := object{}
	for name, text := range about {
		properties[name] = object{"type": "string", "description": text}
	}
	return object{"type": "object", "properties": properties}
}

// submissions are jobs that are published without a request.
func (a *asyncAPI) submissions() {
	a.messages["job"] = object{
		"title": "A job", "payload": &jsonschema.Schema{Ref: "#/$defs/job"},
		"headers": headers(map[string]string{
			operation.JobIDHeader: "The job's id, a UUIDv7 of the sender's choice: the same again is the same job.",
			jobs.TraceParent:      "The span of the sender, as W3C Trace Context has it: the job is part of that trace, unless it names another one.",
			jobs.TraceState:       "What tracing systems add to it.",
		}),
	}
	a.messages["cloudevent"] = object{
		"title": "A job in a CloudEvent 1.0, in structured mode; in binary mode the message is the job itself", "contentType": "application/cloudevents+json",
		"payload": object{"type": "object", "required": []string{"specversion", "id", "source", "type", "data"}, "properties": object{"data": &jsonschema.Schema{Ref: "#/$defs/job"}}},
	}
	channel := a.channel("submissions", "penstock.v1.submit.{tenant}", "Jobs of programs that want no answer but the acknowledgement of JetStream: the job is stored. One that is not valid becomes a dead letter.", "job", "cloudevent")
	channel["parameters"] = object{"tenant": object{"description": "The tenant of the pool.", "default": "default"}}
	a.operation("takeSubmission", "receive", "submissions", "Take a job.")
}

// events are what is told of sessions.
func (a *asyncAPI) events() error {
	var kinds []string
	for _, row := range event.Kinds() {
		data, err := payload(row)
		if err != nil {
			return err
		}
		kind := string(row.Kind)
		a.parts["data."+kind] = data
		kinds = append(kinds, kind)
		a.messages[kind] = object{
			"title": row.About,
			"payload": object{"allOf": []any{
				&jsonschema.Schema{Ref: "#/$defs/event"},
				object{"type": "object", "properties": object{"kind": object{"const": kind}, "data": &jsonschema.Schema{Ref: "#/$defs/data." + kind}}},
			}},
		}
	}
	slices.Sort(kinds)
	a.messages["stored"] = object{"title": "An event was stored", "payload": object{"type": "string", "maxLength": 0}}
	session := object{"tenant": object{"description": "The tenant of the pool.", "default": "default"}, "session": object{"description": "The session's id, which a submission is answered with."}}
	channel := a.channel("sessionEvents", "penstock.v1.sessions.{tenant}.{session}.events", "The events of a session, kept in the stream PS_EVENTS. Their numbers begin with 1 and have no gap.", kinds...)
	channel["parameters"] = session
	a.operation("tellEvent", "send", "sessionEvents", "Tell what happens in a session.")
	channel = a.channel("sessionStored", "penstock.v1.stored.{tenant}.{session}.events", "Says that an event was stored, to readers that wait for the next one. It may be lost.", "stored")
	channel["parameters"] = session
	a.operation("announceEvent", "send", "sessionStored", "Say that an event was stored.")
	return nil
}

// requests are the operations of the bus, each with its answer.
func (a *asyncAPI) requests() error {
	a.messages["refusal"] = object{
		"title": "Why a request was not fulfilled", "payload": &jsonschema.Schema{Ref: "#/$defs/refusal"},
		"headers": headers(map[string]string{"Nats-Service-Error": "The refusal's message. An answer without this header is none."}),
	}
	for _, row := range operation.All() {
		request, err := a.shape(row.Request, true)
		if err != nil {
			return fmt.Errorf("describe a request to %s: %w", row.Name, err)
		}
		answer, err := a.shape(row.Answer, false)
		if err != nil {
			return fmt.Errorf("describe the answer to %s: %w", row.Name, err)
		}
		asked, answered := row.Name+".request", row.Name+".answer"
		a.messages[asked] = object{"title": row.Sentence, "payload": request, "headers": headers(map[string]string{operation.CallerHeader: "Who asks, in a word; kept with what the request changes."})}
		a.messages[answered] = object{"title": "The answer to " + row.Name, "payload": answer}
		channel := "api." + row.Name // others have names without a dot
		a.channel(channel, "penstock.v1.api."+row.Name, row.Sentence, asked)
		a.channel(channel+".reply", nil, "The inbox that the request names.", answered, "refusal")
		made := a.operation(camel(row.Name), "receive", channel, row.Sentence)
		made["reply"] = object{"address": object{"location": "$message.header#/reply"}, "channel": reference("channels", channel+".reply")}
	}
	return nil
}
