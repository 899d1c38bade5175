import { injectedFaults, faultFates } from '../mesh/injected.ts'
import { ArmedFaults } from '../chaos/control/chaos-run.ts'
import { Engine, injector } from '../chaos/firing/engine.ts'
import { faults as registry } from '../chaos/faults/index.ts'
import { Journal } from '../chaos/journal/journal.ts'
import { KillSwitch } from '../chaos/kill/kill-switch.ts'
import type { Fault } from '../chaos/plan/common.ts'
import type { Config } from '../config/schema/schema.ts'
import type { Call, Caller, Channel, Message, Outcome } from '../mesh/call.ts'
import { newRecord } from '../mesh/call.ts'
import { Cancellation, ignore, type Signal } from '../mesh/cancel.ts'
import type { Clock } from '../mesh/clock.ts'
import { compileMesh, type Mesh } from '../mesh/compile.ts'
import { createKeyedRandom, type Seed } from '../mesh/keyed-random.ts'
import type { Layer } from '../mesh/call.ts'
import type { MeshEvent } from '../mesh/policy.ts'
import { States } from '../mesh/state.ts'
import { policies } from '../policies/index.ts'
import { type Schemas, sharedSchemas } from '../policies/state/schemas.ts'
import { type Check, compileSchema } from '../policies/state/schemas/compile.ts'
import { INTENT_KEY, STEP_KEY, taskOf } from '../protocol/task.ts'
import { environmentOf } from './environment.ts'
import { type Json, type ServerModel, SimulatedServer } from './servers.ts'

export interface GatewayOptions {
  readonly clock: Clock
  /** Seed for draws of servers and policies. */
  readonly seed: Seed
  readonly servers: Readonly<Record<string, ServerModel>>
  /** The policies, as in a parsed config. */
  readonly policies: Config['policies']
  /** Name of the policy set. Default: the policies without a name. */
  readonly set?: string
  /** Faults armed from the beginning, and the seed of their draws. */
  readonly plan?: { readonly seed: Seed; readonly faults: readonly Fault[] }
  readonly onCall?: (call: Call, outcome: Outcome) => void
  readonly onEvent?: (event: MeshEvent) => void
  /** True if the journal keeps decisions not to inject a fault by chance (nearly all decisions). Default: false. */
  readonly keepsMisses?: boolean
  /** A layer between all policies and the servers, such as a client library with its own retries. */
  readonly library?: Layer
}

export interface Asked {
  readonly server: string
  readonly tool: string
  readonly args: Json
  /** The call's task, and the number of the call in the task. */
  readonly intent: string
  readonly step?: number
  readonly tenant?: string
  /** Aborts when the agent gives up. Default: never. */
  readonly signal?: Signal
}

export interface Ended {
  readonly call: Call
  readonly outcome: Outcome
}

/**
 * A gateway without network: policies and faults are compiled as for live traffic. Callers are functions, and servers
 * are models.
 */
export class SimulatedGateway {
  readonly servers: ReadonlyMap<string, SimulatedServer>
  readonly mesh: Mesh
  /** Records the hits of faults, and the reasons why faults did not hit. */
  readonly journal: Journal
  readonly engine: Engine
  readonly #clock: Clock
  readonly #set: string | undefined
  readonly #armed: ArmedFaults
  readonly #schemas: Schemas
  #calls = 0

  constructor(options: GatewayOptions) {
    const { clock, seed, policies: config, set, plan, onCall = ignore, onEvent = ignore } = options
    const { library = (next) => next, keepsMisses = false } = options
    this.journal = new Journal({ keepsMisses })
    const random = createKeyedRandom(seed)
    this.#clock = clock
    this.#set = set
    this.servers = new Map(
      Object.entries(options.servers).map(([name, model]) => [
        name,
        new SimulatedServer(name, model, { clock, draw: random }),
      ]),
    )
    const kill = new KillSwitch(clock)
    this.engine = new Engine({
      clock,
      kill,
      journal: this.journal,
      faultEnvironment: environmentOf(this.servers, clock),
      effectOf: (call) => this.mesh.effectOf(call),
      emit: ignore,
      onError: (errors) => {
        throw new Error(`the chaos engine failed ${errors} times`)
      },
    })
    this.engine.strict = true
    this.#armed = new ArmedFaults({
      clock,
      kill,
      registry,
      onChange: (faults) => this.engine.arm(faults),
      onExpired: ignore,
    })
    const context = { clock, random, state: new States(clock), emit: onEvent }
    this.#schemas = sharedSchemas(context, compileOnce)
    this.mesh = compileMesh({
      policies,
      config,
      context,
      servers: this.servers,
      readdress: () => undefined,
      observe: this.#observe(onCall),
      attempt: (next) => next,
      faults: { client: injector('client', this.engine), upstream: injector('upstream', this.engine) },
      transport: library((call) => this.servers.get(call.server)!.send(call)),
    })
    if (plan !== undefined) this.arm(plan)
  }

  /** Resolves when the schemas of all tools are compiled, as in a gateway that has run for a while. */
  async prepare(): Promise<void> {
    for (const server of this.servers.values())
      for (const { inputSchema, outputSchema } of server.definitions) {
        this.#schemas.find(inputSchema, 'arguments')
        this.#schemas.find(outputSchema, 'reply')
      }
    while (this.#schemas.counts().waiting > 0) await this.#clock.sleep(1, new Cancellation())
  }

  /** Arms further faults. */
  arm({ seed, faults }: NonNullable<GatewayOptions['plan']>): void {
    if (this.#armed.size === 0) this.engine.begin()
    this.#armed.change(faults, createKeyedRandom(seed))
  }

  disarm(): void {
    this.#armed.clear('disarmed')
  }

  get faults() {
    return this.#armed.list()
  }

  async call(asked: Asked, caller: Caller = agent): Promise<Ended> {
    const { call, outcome } = this.begin(asked, caller)
    return { call, outcome: await outcome }
  }

  begin(asked: Asked, caller: Caller = agent): { readonly call: Call; readonly outcome: Promise<Outcome> } {
    const { server, tool } = asked
    const call: Call = {
      server,
      method: 'tools/call',
      tool,
      id: ++this.#calls,
      message: new Request(this.#calls, asked),
      headers: undefined,
      inbound: NO_HEADERS,
      caller,
      tenant: asked.tenant ?? 'default',
      countsAs: asked.tenant ?? 'default',
      channel: nowhere,
      signal: asked.signal ?? new Cancellation(),
      deadline: undefined,
      attempt: 1,
      replica: undefined,
      wire: undefined,
      onSent: undefined,
      record: newRecord(this.#clock.now()),
    }
    return { call, outcome: this.mesh.serviceFor(server, 'tools/call', tool, this.#set)(call) }
  }

  #observe(onCall: (call: Call, outcome: Outcome) => void): Layer {
    const ended = (call: Call, outcome: Outcome) => {
      call.record.isOver = true
      if (injectedFaults.of(call.record) !== undefined)
        faultFates.note(call.record, this.engine.account(call, outcome))
      onCall(call, outcome)
      return outcome
    }
    return (next) => (call) => {
      call.record.intent = taskOf(call)
      return next(call).then((outcome) => ended(call, outcome))
    }
  }
}

const compiled = new Map<string, Check>()

/**
 * Compiles each model schema once per process, because a study has a gateway for each of its many runs. The checks do
 * not measure CPU time, so results are reproducible.
 */
function compileOnce(schema: Json, all: boolean): Check {
  const key = `${all} ${JSON.stringify(schema)}`
  let check = compiled.get(key)
  if (check === undefined) compiled.set(key, (check = compileSchema(schema, all, () => 0)))
  return check
}

/** The request of a call. Its text is built when it is read for the first time. */
class Request implements Message {
  readonly value: Readonly<Record<string, unknown>>
  #text: string | undefined

  constructor(id: number, { tool, args, intent, step }: Asked) {
    const _meta = step === undefined ? { [INTENT_KEY]: intent } : { [INTENT_KEY]: intent, [STEP_KEY]: step }
    this.value = { jsonrpc: '2.0', id, method: 'tools/call', params: { name: tool, arguments: args, _meta } }
  }

  get text(): string {
    return (this.#text ??= JSON.stringify(this.value))
  }
}

/** The default caller: a client of the modern era, without a session. */
const agent: Caller = {
  id: 'agent',
  initializeParams: {},
  client: 'agent',
  listening: false,
  era: 'modern',
  receive: ignore,
}

/** The channel to an agent. Faults can change the bytes of replies, and replies arrive without delay. */
const nowhere: Channel = {
  open: ignore,
  pause: ignore,
  send: () => undefined,
  wire: {
    shape({ over }) {
      over?.()
      return true
    },
  },
}
const NO_HEADERS = {}
