package grpctask

import (
	"bytes"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"nf/systemtasks"
)

// method is a unary method of a Target's service, with the types that its messages may hold.
type method struct {
	name  string
	path  string // /package.Service/Method
	desc  protoreflect.MethodDescriptor
	types *dynamicpb.Types
}

// maxServices bounds how many Targets' compiled services are kept.
const maxServices = 256

// methods keeps the compiled services of Targets, since compiling costs far more than a call. Safe for concurrent use.
type methods struct {
	mu       sync.Mutex
	services map[string]*service // by namespace/name of the Target
	uses     uint64
}

// service is the compiled service of one Target, as long as its descriptors stay the same.
type service struct {
	source []byte // the Target's Descriptors, shared with it
	name   string
	desc   protoreflect.ServiceDescriptor
	types  *dynamicpb.Types
	used   uint64
}

func newMethods() *methods { return &methods{services: map[string]*service{}} }

// find gives a unary method of the call's Target.
func (m *methods) find(c *call, name string) (*method, systemtasks.Outcome) {
	s, err := m.service(c)
	if err != nil {
		return nil, systemtasks.Refused(fmt.Sprintf("the descriptors of the target %s: %s", c.name, err))
	}
	desc := s.desc.Methods().ByName(protoreflect.Name(name))
	switch {
	case desc == nil:
		return nil, systemtasks.Misfit(fmt.Sprintf("the service %s has no method %q", s.name, name))
	case desc.IsStreamingClient() || desc.IsStreamingServer():
		return nil, systemtasks.Misfit(fmt.Sprintf("the method %s/%s is a stream: only unary methods can be called", s.name, name))
	}
	return &method{name: name, path: "/" + s.name + "/" + name, desc: desc, types: s.types}, nil
}

// service gives the compiled service of the call's Target.
func (m *methods) service(c *call) (*service, error) {
	target := c.target.GRPC
	m.mu.Lock()
	m.uses++
	known := m.services[c.name]
	if known != nil && known.name == target.Service && bytes.Equal(known.source, target.Descriptors) {
		known.used = m.uses
		m.mu.Unlock()
		return known, nil
	}
	m.mu.Unlock()

	// Two calls may compile the same service side by side; that is cheaper than making all calls wait.
	compiled, err := compile(target.Descriptors, target.Service)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	compiled.used = m.uses
	m.services[c.name] = compiled
	if len(m.services) > maxServices {
		m.dropOldest()
	}
	return compiled, nil
}

// dropOldest forgets the service that was used longest ago.
func (m *methods) dropOldest() {
	oldest := ""
	for name, s := range m.services {
		if oldest == "" || s.used < m.services[oldest].used {
			oldest = name
		}
	}
	delete(m.services, oldest)
}

// compile reads a FileDescriptorSet and finds a service in it.
func compile(source []byte, name string) (*service, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(source, &set); err != nil {
		return nil, fmt.Errorf("reading the descriptor set: %s", plainError(err))
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("linking the descriptor set: %s", plainError(err))
	}
	desc, err := files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("finding the service %q: %s", name, plainError(err))
	}
	found, ok := desc.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%q is not a service", name)
	}
	return &service{source: source, name: name, desc: found, types: dynamicpb.NewTypes(files)}, nil
}
