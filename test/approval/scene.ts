import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import type { Agent } from '../../src/approval/agent.ts'
import { type AgentRuns, createAgentRuns } from '../../src/approval/agent-runs.ts'
import type { Approval } from '../../src/approval/approval.ts'
import { newKey, openPrivateKey, sign } from '../../src/approval/keys.ts'
import { Ledger, type LedgerEntry } from '../../src/approval/ledger.ts'
import type { Proposal, Started } from '../../src/approval/proposals.ts'
import { Trust } from '../../src/approval/trust.ts'
import { withoutSecrets } from '../../src/chaos/plan/schema.ts'
import type { Asked, Plan, Request } from '../../src/experiments/guarded/guarded.ts'
import { lengthOf, type Spec } from '../../src/experiments/guarded/spec.ts'
import type { RunRecord } from '../../src/experiments/guarded/record.ts'
import { inUnits, isFreeText, isOfOtherKind } from '../../src/gateway/control-mcp/free-fields.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'
import { ManualClock } from '../support/manual-clock.ts'

const scenes: { readonly folder: string; readonly runs: AgentRuns }[] = []
after(async () => {
  for (const { runs, folder } of scenes) {
    await runs.close()
    await rm(folder, { recursive: true })
  }
})

const PASSPHRASE = 'a passphrase of tests'
const made = newKey(PASSPHRASE)
const key = openPrivateKey(made.pem, PASSPHRASE)!
const gateway = `gw-${'0'.repeat(32)}`
const identity = 'a'.repeat(64)

export const writer: Agent = { name: 'writer', mayWrite: true }

/** A run inside the envelope of the scene. */
export const insideSpec = (more: object = {}): Spec =>
  specOf({ stages: [{ share: 0.25, duration: '2s' }], ...more })

/** Permissions for runs over a ledger on disk, with runs that begin at once and end when the test says so. */
export async function opened() {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-approval-'))
  const clock = new ManualClock()
  const ledger = await Ledger.open(folder, clock.wall())
  const rules = {
    refusals: [] as string[],
    ground: 'one',
    /** The result of the next start, in place of a run. */
    begins: undefined as (() => Promise<Asked>) | undefined,
    isKilled: false,
  }
  const active: RunRecord[] = []
  const targets = { environment: 'staging', servers: [{ name: 'a', tools: ['t'], hit: ['t'] }] }
  const plan = (spec: Spec): Plan => ({
    refusals: rules.refusals,
    doubts: [],
    targets,
    hashes: { config: 'c', policies: 'p', faults: 'f' },
    seed: '1',
    name: spec.name,
    shape: 'shape',
    lengthMs: lengthOf(spec),
    stages: [],
    rules: [],
    faults: [],
    waitsBecause: undefined,
    completedBefore: 0,
  })
  const run = async (spec: Spec, { id, by, approvedBy, proof, recheck }: Request): Promise<Asked> => {
    if (rules.begins !== undefined) return rules.begins()
    const refusals = recheck?.(plan(spec)) ?? []
    if (refusals.length > 0) return { ok: false, refusals }
    const record = recordOf(spec, { id: id!, actor: by, approver: approvedBy, proof })
    active.push(record)
    return { ok: true, run: record }
  }
  const runs = createAgentRuns(
    {
      clock,
      gateway,
      environment: 'staging',
      command: (words) => words,
      trust: new Trust([{ name: 'alice', key: made.publicText }]),
      opened: ledger,
      runs: {
        plan,
        run,
        stop: () => ({ ok: true }),
        get: (name) => active.find((one) => one.name === name),
        list: () => active,
        running: undefined,
      },
      hitToolsOf: () => [{ server: 'a', identity, tool: 't', effect: 'read_only' }],
      groundOf: () => rules.ground,
      withoutSecrets,
      isFreeText,
      isOfOtherKind,
      inUnits,
      tenantsOf: () => 1,
      isKilled: () => rules.isKilled,
      isProtected: () => false,
      emit: () => undefined,
    },
    [],
  )
  const scene = { clock, rules, runs, folder }
  scenes.push(scene)
  return scene
}

export type Scene = Awaited<ReturnType<typeof opened>>

/** Puts an envelope for `insideSpec` into force. */
export async function install({ runs, clock }: Scene, more: object = {}): Promise<void> {
  const envelope = {
    format: 1,
    id: 'env-test',
    gateway,
    environment: 'staging',
    notBefore: new Date(clock.wall()).toISOString(),
    expiresAt: new Date(clock.wall() + 86_400_000).toISOString(),
    proposers: ['writer'],
    targets: [{ server: 'a', identity, tools: ['t'] }],
    faults: [{ type: 'rpc.error', maxRate: 1 }],
    ladder: [0.25, 0.5],
    maxStage: '1m',
    maxRun: '5m',
    gate: ['error_ratio < 10%'],
    gateWindow: { over: '1s', minimum: 5 },
    budget: { runs: 20, perDay: 20, aborts: 5 },
    ...more,
  }
  const installed = await runs.envelopes.install({
    envelope,
    signature: sign('envelope', envelope, key, 'alice'),
  })
  if (!installed.ok) throw new Error(installed.message)
}

/** Proposes a run; throws for a refusal. */
export async function propose(
  runs: AgentRuns,
  why: string,
  agent: Agent = writer,
  spec: Spec = insideSpec(),
): Promise<Proposal> {
  const proposed = await runs.proposals.propose(agent, { spec, firstStage: 0, why })
  if (!proposed.ok) throw new Error(proposed.message)
  return proposed.proposal
}

/** Approves a proposal by the trusted person. `change` alters the document before signing. */
export function approve(runs: AgentRuns, proposal: Proposal, change: Partial<Approval> = {}) {
  const approval = { ...runs.approvals.documentOf(proposal.id, proposal, proposal.firstStage), ...change }
  return runs.proposals.approve({ approval, signature: sign('approval', approval, key, 'alice') })
}

/** The run of a start; throws for a refusal. */
export function runIn(started: Started): RunRecord {
  if (!started.ok) throw new Error(`${started.code}: ${started.message}`)
  return started.run
}

/** Closes the scene, and returns the entries of its ledger. */
export async function entriesOf({ runs, folder, clock }: Scene): Promise<readonly LedgerEntry[]> {
  await runs.close()
  const { ledger, entries } = await Ledger.open(folder, clock.wall())
  await ledger.close()
  return entries
}
