import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { Children, type Listening } from './children.ts'
import type { AgentsOrder, AgentsReport } from './growth-agents.ts'
import { grow, pause, type Grown, type Planned } from './growth-gateway.ts'
import type { UpstreamOrder, UpstreamReport } from './growth-upstream.ts'
import type { Figures, Order, Report } from './load.ts'
import { script } from './middle.ts'
import { spread } from './statistics.ts'

export interface Target {
  readonly gateway: Grown
  readonly path: string
  readonly tool: string
}

/** The cost of calls through one of several gateways: medians over the rounds. */
export interface CallCost {
  readonly cpuMicros: number
  /** CPU over that of the first gateway, round by round. */
  readonly timesFirst: number
  readonly p50Ms: number
  readonly p99Ms: number
}

/** Many short windows, each gateway in turn, so that other work on the machine affects all gateways alike. */
const ROUNDS = 9
const CALLS = 300
const CALLERS = 8

/** Discarded windows, in which code is compiled. */
const WARM_UP = 3

/** The processes of one part of a run: servers, agents, load, and any number of gateways. */
export class Stage {
  readonly upstream: Listening
  readonly #children: Children
  readonly #scratch: string
  readonly #agents: ChildProcess
  readonly #load: ChildProcess

  private constructor(children: Children, scratch: string, upstream: Listening) {
    this.#children = children
    this.#scratch = scratch
    this.upstream = upstream
    this.#agents = children.fork(script('./growth-agents.js'))
    this.#load = children.fork(script('./load.js'))
  }

  /** `scratch` is a folder for files; `lost` gets the error of a process that ended too early. */
  static async open(scratch: string, lost: (error: Error) => void): Promise<Stage> {
    const children = new Children(lost)
    return new Stage(
      children,
      scratch,
      await children.listening([script('./growth-upstream.js')], { channel: true }),
    )
  }

  close(): Promise<void> {
    return this.#children.end()
  }

  grow(planned: Planned): Promise<Grown> {
    return grow(this.#children, this.#scratch, planned)
  }

  /** Returns the URL of a server with this number of tools; `listens` gives the server a stream outside of calls. */
  server(name: string, { tools = 1, listens = false } = {}): string {
    return `${this.upstream.origin}/${name}?tools=${tools}${listens ? '&listen' : ''}`
  }

  /** Sends an order to the agents and waits for its end. */
  async agents(order: AgentsOrder): Promise<AgentsReport> {
    this.#agents.send(order)
    const [report] = (await once(this.#agents, 'message')) as [AgentsReport]
    if (report.failure !== undefined) throw new Error(`${order.kind}: ${report.failure}`)
    return report
  }

  async servers(order: UpstreamOrder): Promise<UpstreamReport> {
    this.upstream.child.send(order)
    const [report] = (await once(this.upstream.child, 'message')) as [UpstreamReport]
    return report
  }

  /** Returns the durations of calls on time, ascending, in milliseconds. Throws if a call fails. */
  async steady(order: Omit<Extract<AgentsOrder, { kind: 'steady' }>, 'kind'>): Promise<readonly number[]> {
    return (await this.agents({ kind: 'steady', ...order })).latencies ?? []
  }

  async until(isThere: (report: UpstreamReport) => boolean, what: string): Promise<void> {
    for (let tries = 0; tries < 600; tries++) {
      if (isThere(await this.servers({ kind: 'count' }))) return
      await pause(50)
    }
    throw new Error(`${what}: ${JSON.stringify(await this.servers({ kind: 'count' }))} after 30 s`)
  }

  async calls(targets: readonly Target[], rounds = ROUNDS): Promise<CallCost[]> {
    const windows: Figures[][] = targets.map(() => [])
    for (let round = -WARM_UP; round < rounds; round++)
      for (const [index, target] of targets.entries()) {
        const figures = await this.window(target)
        if (round >= 0) windows[index]!.push(figures)
      }
    const cpu = (figures: Figures) => figures.cpuMicrosPerCall ?? NaN
    return windows.map((own) => ({
      cpuMicros: spread(own.map(cpu)).median,
      timesFirst: spread(own.map((figures, round) => cpu(figures) / cpu(windows[0]![round]!))).median,
      p50Ms: spread(own.map(({ p50Ms }) => p50Ms)).median,
      p99Ms: spread(own.map(({ p99Ms }) => p99Ms)).median,
    }))
  }

  async window({ gateway, path, tool }: Target, calls = CALLS, callers = CALLERS): Promise<Figures> {
    const order: Order = {
      url: gateway.origin + path,
      tool,
      era: 'legacy',
      fill: 0,
      callers,
      warmUp: 50,
      calls,
      pid: gateway.pid,
    }
    this.#load.send(order)
    const [report] = (await once(this.#load, 'message')) as [Report]
    if ('failure' in report) throw new Error(`${path}: ${report.failure}`)
    return report.figures
  }
}
