import { dirname } from 'node:path'
import { stringify } from 'yaml'
import { openGatewayId } from '../../approval/gateway-id.ts'
import { Ledger } from '../../approval/ledger.ts'
import type { Agent } from '../../approval/agent.ts'
import { type AgentRuns, createAgentRuns } from '../../approval/agent-runs.ts'
import type { Trust } from '../../approval/trust.ts'
import type { Controller } from '../../chaos/control/controller.ts'
import { withoutSecrets } from '../../chaos/plan/schema.ts'
import type { Config } from '../../config/schema/schema.ts'
import { AgentGameDays } from '../../control/mcp/agent-gamedays.ts'
import { PlanLibrary, type ReadPlan, type SearchReport } from '../../control/mcp/plans.ts'
import { RunHistory } from '../../control/mcp/run-history.ts'
import { Signals } from '../../control/mcp/signals.ts'
import type { Operations } from '../../control/mcp/tool.ts'
import type { RecentTraffic } from '../../control/mcp/traffic.ts'
import { Bodies, BodyRefusal } from '../../downstream/http/bodies.ts'
import type { GuardedExperiments } from '../../experiments/guarded/guarded.ts'
import type { RunRecord } from '../../experiments/guarded/record.ts'
import type { GameDays } from '../../gamedays/gamedays.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import type { StateStore } from '../../mesh/policy.ts'
import { isDeeperThan } from '../../protocol/json-span.ts'
import { MAX_DEPTH } from '../../protocol/json-check.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { Incidents } from '../../registry/health/incidents.ts'
import { registerControlMcp } from '../../routes/control-mcp.ts'
import { reportIn } from '../../sim/search/report.ts'
import type { Log } from '../../telemetry/log.ts'
import { isGameDay, readGameDay } from '../gameday-file.ts'
import { readExperiment } from '../guarded/file.ts'
import { experimentSpec } from '../guarded/spec.ts'
import { groundOf } from '../guarded/survey.ts'
import { commandAt } from '../control-address.ts'
import { addressOf, createPlane, jsonRpcError, listenAt } from '../planes.ts'
import type { createControlGuards } from '../guards.ts'
import { limitsOf } from '../../config/limits.ts'
import { inUnits, isFreeText, isOfOtherKind } from './free-fields.ts'
import { hitToolsOf } from './targets.ts'

/** Largest body of a request to the control MCP server, in bytes. */
const MAX_BODY = 256 * 1024

export interface ControlMcpGatewayParts {
  readonly clock: Clock
  readonly log: Log
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly state: StateStore
  readonly controller: Controller
  readonly incidents: Incidents
  readonly guarded: GuardedExperiments
  readonly gameDays: GameDays
  /** Runs of earlier processes, and a reader of sealed runs. */
  readonly earlier: readonly RunRecord[]
  readonly findRun: (id: string) => Promise<RunRecord | undefined>
  readonly traffic: RecentTraffic
  readonly trust: Trust
  readonly stateDir: string
  /** The address of the control plane; undefined before the gateway listens. */
  readonly control: () => string | undefined
  readonly environment: string
  readonly guards: ReturnType<typeof createControlGuards>
}

export interface ControlMcp {
  readonly agentRuns: AgentRuns
  /** Names of the agents that have a token. */
  readonly agents: readonly string[]
  /** Returns the agent that has a token with this name; undefined when there is none. */
  readonly agentOf: (name: string) => Agent | undefined
  readonly signals: Signals
  /** Hears of the end of each run. */
  ended(run: RunRecord): void
  /** Listens; resolves to the base URL. Rejects when the address cannot be bound. */
  listen(): Promise<string>
  close(): Promise<void>
}

/** Creates the control MCP server of a gateway. Rejects when its state cannot be read or written. */
export async function openControlMcp(
  config: Config['gateway'],
  parts: ControlMcpGatewayParts,
): Promise<ControlMcp> {
  const {
    clock,
    log,
    live,
    state,
    controller,
    incidents,
    guarded,
    traffic,
    trust,
    stateDir,
    environment,
    guards,
  } = parts
  const settings = config.controlMcp!
  const { id: gateway, renewed, isKnown } = await openGatewayId(stateDir)
  if (renewed !== undefined) log.warn({ gateway }, renewed)
  const opened = await Ledger.open(stateDir, clock.wall(), isKnown)
  if (opened.damage !== undefined)
    log.warn({ damage: opened.damage }, 'the ledger of approvals is damaged: all envelopes are suspended')
  const history = new RunHistory(parts.earlier, () => guarded.list(), parts.findRun)
  const agentRuns = createAgentRuns(
    {
      clock,
      gateway,
      environment,
      command: (words) => commandAt(words, parts.control()),
      trust,
      opened,
      runs: guarded,
      hitToolsOf: (_, spec) => hitToolsOf(spec, live.current),
      groundOf: (spec) => groundOf(spec, { live }),
      withoutSecrets,
      isFreeText,
      isOfOtherKind,
      inUnits,
      tenantsOf(hit) {
        const tools = new Set(hit.map(({ server, tool }) => JSON.stringify([server, tool])))
        return traffic.of((server, tool) => tools.has(JSON.stringify([server, tool])))?.tenants
      },
      isKilled: () => controller.killSwitch.on,
      isProtected: (server) => live.current.servers.get(server)?.protected === true,
      emit: ({ order, by, result, detail }) => log.warn({ order, by, result, detail }, 'control MCP server'),
    },
    parts.earlier,
  )
  const agents = settings.tokens.map(({ name }) => name)
  const signals = new Signals(
    clock,
    traffic,
    () => live.current.servers.keys(),
    () => guarded.list(),
  )
  const operations: Operations = {
    clock,
    live,
    state,
    chaos: controller,
    incidents,
    guarded,
    agentRuns,
    gameDays: new AgentGameDays(parts.gameDays, clock, agents),
    history,
    plans: new PlanLibrary(settings.plans, readPlan),
    traffic,
    signals,
    spec: experimentSpec,
  }
  const address = addressOf(settings.listen)
  const rules = { maxBody: MAX_BODY, maxBodyName: '256 KiB, for the control MCP server' }
  const bodies = new Bodies(clock, rules, limitsOf(config).bodies, () => undefined)
  const app = createPlane({ clock, host: address.host, log, guards }, jsonRpcError)
  const json = app.getDefaultJsonParser('error', 'error')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    bodies.read(payload, (error, text = '') => {
      if (error !== null) return done(error, undefined)
      if (isDeeperThan(MAX_DEPTH, text))
        return done(
          new BodyRefusal(400, `Bad Request: objects and arrays are nested more than ${MAX_DEPTH} deep`),
        )
      void json(request, text, done)
    })
  })
  const handler = registerControlMcp(app, { operations, tokens: settings.tokens, host: address.host, log })
  return {
    agentRuns,
    agents,
    agentOf(name) {
      const token = settings.tokens.find((one) => one.name === name)
      return token && { name, mayWrite: token.tools === 'write' }
    },
    signals,
    ended(run) {
      history.over(run)
      agentRuns.active.ended(run)
    },
    listen: () => listenAt(address, app, 'gateway.controlMcp.listen'),
    async close() {
      signals.close()
      await handler.close()
      await app.close()
      await agentRuns.close()
    },
  }
}

async function readPlan(path: string): Promise<ReadPlan | SearchReport> {
  const file = await readExperiment(path)
  const name = path.replace(/^.*[/\\]/, '').replace(/\.\w+$/, '')
  if (!file.ok) {
    if (isGameDay(file.written)) return readGameDayPlan(path, name)
    return reportIn(file.written) ?? { ok: false, kind: 'guarded', name, problems: file.problems, files: [] }
  }
  const { name: planned, title } = file.spec
  // The file may hold a key in a header.
  return {
    ok: true,
    kind: 'guarded',
    name: planned,
    title,
    text: stringify(withoutSecrets(file.written)),
    written: file.written,
    files: [],
  }
}

async function readGameDayPlan(path: string, name: string): Promise<ReadPlan> {
  const read = await readGameDay(path, { within: dirname(path) })
  const { files } = read
  if (!read.ok) return { ok: false, kind: 'gameday', name, problems: read.problems, files }
  const { plan, written } = read
  const text = stringify(withoutSecrets(written))
  return { ok: true, kind: 'gameday', name: plan.name, title: plan.title, text, plan, files }
}
