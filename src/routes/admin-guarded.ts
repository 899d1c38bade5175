import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import type { Asked, GuardedExperiments, Survey } from '../experiments/guarded/guarded.ts'
import { isOver, type RunRecord, stagesPlayed } from '../experiments/guarded/record.ts'
import type { AgentRuns } from '../approval/agent-runs.ts'
import { signedApprovalSchema } from '../approval/approval.ts'
import { refused } from './admin-approvals.ts'
import { lengthOf, line, type Spec } from '../experiments/guarded/spec.ts'
import { printableJson } from '../telemetry/printable.ts'
import { malformed, read } from './answers.ts'

export interface AdminGuardedParts {
  readonly guarded: GuardedExperiments
  /** Checks signed approvals; undefined without the control MCP server, and then a name approves. */
  readonly agentRuns?: AgentRuns | undefined
  readonly spec: z.ZodType<Spec>
}

interface Named {
  readonly Params: { readonly name: string }
}

/** The author of a request without `by`. */
const BY = 'admin API'

const person = line(128)

const approval = z.strictObject({ by: person.describe('Name of the approver.') })

/** Returns the author that a request names in its `by`, or `BY`. */
export function whoIn(body: unknown): string {
  const read = approval.safeParse(body)
  return read.success ? read.data.by : BY
}

/** Most unread bytes of a listener. With more, the listener gets no events until it has read. */
const MAX_UNREAD = 256 * 1024

/** Most listeners of one run; a further listener replaces the first. */
const MAX_OF_RUN = 8

interface Listener {
  readonly name: string
  readonly end: () => void
}

/**
 * The listeners to guarded runs, in order of arrival. At the limit, a new listener replaces a listener of a run that is
 * not in progress.
 */
class Listeners {
  readonly #all = new Set<Listener>()
  readonly #guarded: GuardedExperiments

  constructor(guarded: GuardedExperiments) {
    this.#guarded = guarded
  }

  /**
   * Adds a listener. Returns a function that removes it; undefined with too many listeners. Calls `onEnd` when another
   * listener replaces it.
   */
  add(name: string, hear: (run: RunRecord) => void, onEnd: () => void): (() => void) | undefined {
    const ofRun = [...this.#all].filter((one) => one.name === name)
    if (ofRun.length >= MAX_OF_RUN) ofRun[0]?.end()
    const unlisten = this.#guarded.listen(name, hear) ?? this.#listenInstead(name, hear)
    if (unlisten === undefined) return undefined
    const leave = () => {
      this.#all.delete(listener)
      unlisten()
    }
    const listener: Listener = {
      name,
      end() {
        leave()
        onEnd()
      },
    }
    this.#all.add(listener)
    return leave
  }

  /** Replaces the first listener whose run is not in progress. */
  #listenInstead(name: string, hear: (run: RunRecord) => void): (() => void) | undefined {
    const idle = [...this.#all].find((one) => this.#guarded.get(one.name)?.state !== 'running')
    idle?.end()
    return idle && this.#guarded.listen(name, hear)
  }
}

/**
 * Registers the routes of guarded experiments: `POST /admin/experiments` runs a spec, `/admin/experiments/plan`
 * predicts its effects, `/admin/experiments/{name}/approve` starts a waiting run. `GET
 * /admin/experiments/{name}/events` streams the state of a run. The routes for comparisons and guarded runs together
 * are in `admin-experiments.ts`.
 */
export function registerAdminGuarded(
  app: FastifyInstance,
  { guarded, spec, agentRuns }: AdminGuardedParts,
): void {
  const request = z.strictObject({
    spec,
    by: person.default(BY).describe('Name of the requester.'),
    approvedBy: person.optional().describe('Name of the approver; required to skip stages.'),
    firstStage: z.int().min(1).max(10).default(1).describe('The first stage to run, from 1.'),
  })
  const asked = ({ by, approvedBy, firstStage }: z.output<typeof request>) => ({
    by,
    approvedBy,
    firstStage: firstStage - 1,
  })

  const listeners = new Listeners(guarded)

  app.post('/admin/experiments/plan', (received, reply) => {
    const wanted = read(request, received.body ?? {}, 'the experiment')
    if (!wanted.ok) return malformed(reply, wanted)
    return reply.send(guarded.plan(wanted.value.spec, asked(wanted.value)))
  })

  app.post('/admin/experiments', async (received, reply) => {
    const wanted = read(request, received.body ?? {}, 'the experiment')
    if (!wanted.ok) return malformed(reply, wanted)
    return answered(await guarded.run(wanted.value.spec, asked(wanted.value)), reply, guarded)
  })

  if (agentRuns !== undefined) registerSigned(app, guarded, agentRuns)

  app.post<Named>('/admin/experiments/:name/approve', async ({ params, body }, reply) => {
    const wanted = read(approval, body ?? {}, 'the approval')
    if (!wanted.ok) return malformed(reply, wanted)
    return answered(await guarded.approve(params.name, wanted.value.by), reply, guarded)
  })

  app.get<Named>('/admin/experiments/:name/events', ({ params: { name } }, reply) => {
    const run = guarded.get(name)
    if (run === undefined)
      return reply.code(404).send({ error: `there is no guarded experiment "${name.slice(0, 64)}"` })
    const { raw } = reply
    const tell = (now: RunRecord) => {
      if (raw.writableLength < MAX_UNREAD)
        raw.write(
          `event: ${now.phase}\ndata: ${printableJson(JSON.stringify(guardedInShort(now, guarded.needsSignature)))}\n\n`,
        )
      if (isOver(now)) end()
    }
    const unlisten = listeners.add(name, tell, () => raw.end())
    if (unlisten === undefined)
      return reply.code(503).send({ error: 'too many event streams of experiments are open: close some' })
    const end = () => {
      unlisten()
      raw.end()
    }
    reply.hijack()
    raw.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    raw.once('close', unlisten)
    tell(run)
    return reply
  })
}

/** Registers the approval of a person's waiting run by a signature. */
function registerSigned(app: FastifyInstance, guarded: GuardedExperiments, agentRuns: AgentRuns): void {
  const hashesOf = ({ name, spec, firstStage, targets }: RunRecord) =>
    agentRuns.hasher.of(guarded.specOf(name) ?? spec, firstStage, { targets })
  const waiting = (name: string) => {
    const run = guarded.get(name)
    return run?.state === 'pending_approval' ? run : undefined
  }
  const notWaiting = (name: string) => ({
    error: `experiment "${name.slice(0, 64)}" does not wait for approval`,
  })

  app.get<Named>('/admin/experiments/:name/approval', ({ params: { name } }, reply) => {
    const run = waiting(name)
    if (run === undefined) return reply.code(404).send(notWaiting(name))
    const hashes = hashesOf(run)
    const approval = agentRuns.approvals.documentOf(run.id, hashes, run.firstStage)
    return {
      spec: run.spec,
      firstStage: run.firstStage + 1,
      by: run.actor,
      hit: hashes.hit,
      sealed: hashes.sealed,
      approval,
    }
  })

  app.post<Named>('/admin/experiments/:name/approval', async ({ params: { name }, body }, reply) => {
    const wanted = read(signedApprovalSchema, body ?? {}, 'the approval')
    if (!wanted.ok) return malformed(reply, wanted)
    const run = waiting(name)
    if (run === undefined) return reply.code(404).send(notWaiting(name))
    const { id, firstStage } = run
    const spec = guarded.specOf(name) ?? run.spec
    const hashes = hashesOf(run)
    const checked = agentRuns.approvals.check(wanted.value, id, hashes, firstStage)
    if (!checked.ok) return refused(reply, checked)
    const { by, keyId } = checked
    const used = await agentRuns.approvals.use(wanted.value, by, id)
    if (used !== undefined) return refused(reply, used)
    const { fingerprint: trust } = agentRuns.trust
    // During the writes, another run of the name may have come, or the ground may have changed.
    const recheck = (survey: Survey) => {
      const changed = agentRuns.hasher.changed({ ...hashes, spec, firstStage }, survey)
      return changed === undefined ? [] : [changed.message]
    }
    const proof = { proved: 'key', keyId, trust } as const
    return answered(await guarded.approve(name, by, proof, { id, recheck }), reply, guarded)
  })
}

/** Answers 202 with the run that began or waits, or 409 with the refusals. */
function answered(asked: Asked, reply: FastifyReply, { needsSignature }: GuardedExperiments) {
  if (asked.ok) return reply.code(202).send(guardedInShort(asked.run, needsSignature))
  const findings = asked.refusals.map((message) => ({ path: '', message }))
  return reply.code(409).send({ error: 'refused: nothing was injected', findings })
}

/**
 * Returns a guarded run for lists. Times of the run are in milliseconds since its start. `needsSignature`: whether a
 * waiting run needs a signed approval.
 */
export function guardedInShort(run: RunRecord, needsSignature: boolean) {
  const { spec, stage, samples, beganAt, endedAt, requestedAt } = run
  return {
    kind: 'guarded',
    name: run.name,
    id: run.id,
    title: spec.title,
    state: run.state,
    phase: run.phase,
    reason: run.reason,
    needsSignature,
    stage: stage + 1,
    stages: spec.stages.map(({ share, duration }) => ({ share, duration })),
    arms: spec.arms,
    actor: run.actor,
    approver: run.approver,
    proof: run.proof,
    requestedAt: timeOf(requestedAt),
    startedAt: timeOf(beganAt),
    endedAt: timeOf(endedAt),
    lengthMs: lengthOf(spec),
    elapsedMs: Math.round(samples.at(-1)?.atMs ?? 0),
    latest: samples.at(-1),
    stagesOver: stagesPlayed(run),
    faults: run.faults,
    breach: run.breach,
    nearest: run.nearest,
    rollback: run.rollback,
    recovery: run.recovery,
    detection: run.detection,
    proposal: run.proposal,
  }
}

const timeOf = (wall: number | undefined) => (wall === undefined ? undefined : new Date(wall).toISOString())
