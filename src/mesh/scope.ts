import type { Call, Caller } from './call.ts'
import type { Millis } from './clock.ts'
import type { FallbackCall, Effect, Scope, ToolDefinition } from './policy.ts'

/** What the registry knows of one server. */
export interface ServerFacts {
  /** The identity of each replica's endpoint; at least one. */
  readonly endpoints: readonly string[]
  facts(tool: string): ToolDefinition | undefined
  /** Whether its list has a tool, which agents may call. */
  offers(tool: string): boolean
  /** What the server says of a tool's effect, as far as it is trusted. */
  effectOf(tool: string): Effect
  home(caller: Caller): number | undefined
  homes(caller: Caller): readonly number[] | undefined
  readonly mayMove: boolean
  leave(caller: Caller, replica: number): void
  backAt(replica: number): Millis
  isLost(replica: number): boolean
  reached(replica: number): Promise<boolean> | undefined
  hold(): () => void
}

export interface ScopeParts {
  readonly set: string
  readonly server: string
  readonly tool: string | undefined
  readonly overrides: readonly string[] | undefined
  /** The operator's word on the tool's effect. */
  readonly effect: Effect | undefined
  readonly target: (server: string) => ServerFacts | undefined
  readonly fallbackCall: (set: string, call: Call, server: string, tool: string) => FallbackCall | undefined
}

/** What requests other than tool calls do, as the protocol defines them. */
const effects: ReadonlyMap<string, Effect> = new Map<string, Effect>(
  Object.entries({
    ping: 'read_only',
    initialize: 'read_only',
    'server/discover': 'read_only',
    'tools/list': 'read_only',
    'prompts/list': 'read_only',
    'prompts/get': 'read_only',
    'resources/list': 'read_only',
    'resources/templates/list': 'read_only',
    'resources/read': 'read_only',
    'completion/complete': 'read_only',
    'tasks/get': 'read_only',
    'tasks/list': 'read_only',
    'tasks/result': 'read_only',
    'tasks/cancel': 'idempotent',
    'logging/setLevel': 'idempotent',
    'resources/subscribe': 'idempotent',
    'resources/unsubscribe': 'idempotent',
  }),
)

/** Methods of the protocol that agents and the gateway send. */
export const methods: readonly string[] = [
  ...effects.keys(),
  'tools/call',
  'tasks/update',
  'subscriptions/listen',
]

/** Stands for the endpoint of a server that is not there. */
const nowhere: readonly string[] = ['']

/** A scope over what the registry knows. */
export function scopeFor({ set, server, tool, overrides, effect, target, fallbackCall }: ScopeParts): Scope {
  const endpoints = target(server)?.endpoints ?? nowhere
  return {
    set,
    server,
    tool,
    overrides,
    replicas: endpoints.length,
    endpoints,
    facts: () => (tool === undefined ? undefined : target(server)?.facts(tool)),
    effectOf(call) {
      if (call.tool === undefined) return effects.get(call.method) ?? 'unknown'
      return effect ?? target(server)?.effectOf(call.tool) ?? 'unknown'
    },
    home: (caller) => target(server)?.home(caller),
    homes: (caller) => target(server)?.homes(caller),
    mayMove: () => target(server)?.mayMove ?? true,
    leave: (caller, replica) => target(server)?.leave(caller, replica),
    backAt: (replica) => target(server)?.backAt(replica) ?? -Infinity,
    isLost: (replica) => target(server)?.isLost(replica) ?? false,
    reached: (replica) => target(server)?.reached(replica),
    hold: () => target(server)?.hold() ?? nothing,
    isOffered: (to, other) => target(to)?.offers(other) ?? false,
    fallbackCall: (call, to, other) => fallbackCall(set, call, to, other),
  }
}

function nothing(): void {}
