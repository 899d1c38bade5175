import { createDice } from '../../mesh/dice.ts'
import { faults as registered } from '../faults/index.ts'
import { Engine } from '../firing/engine.ts'
import { Journal } from '../journal/journal.ts'
import { KillSwitch } from '../kill/kill-switch.ts'
import type { ChaosConfig } from '../plan/schema.ts'
import { Announcer } from './announcer.ts'
import { Attachments } from './attachments.ts'
import type { ControllerParts } from './controller-parts.ts'
import { Run } from './run.ts'
import { RuntimeFaults } from './runtime-faults.ts'

/** What the parts ask of whoever controls them, and tell them. */
export interface Control {
  readonly config: () => ChaosConfig
  /** Why a plan of so many faults may not be armed now; undefined when it may. */
  readonly refusal: (faults: number) => string | undefined
  /** The run is to end, by whose doing and why. */
  readonly onEnd: (by: string, why: string) => void
}

/** The parts of the chaos mesh, put together. */
export interface Assembly {
  readonly journal: Journal
  readonly killSwitch: KillSwitch
  readonly announcer: Announcer
  readonly engine: Engine
  readonly run: Run
  readonly attachments: Attachments
  readonly runtime: RuntimeFaults
}

export function assemble(parts: ControllerParts, control: Control): Assembly {
  const { clock, registry = registered, armOf = () => undefined, emit } = parts
  const { config, refusal, onEnd } = control
  const journal = new Journal()
  const kill = new KillSwitch(() => clock.now())
  const announcer = new Announcer(clock, journal, emit)
  const onError = (errors: number) => {
    if (errors >= config().engineErrors) onEnd('engine', `it failed ${errors} times`)
  }
  const engine = new Engine({ ...parts, emit: (event) => announcer.tell(event), kill, journal, onError })
  const onExpired = (fault: string) => announcer.tell({ type: 'expired', by: 'ttl', detail: { fault } })
  const run = new Run({ clock, kill, registry, armOf, engine, onExpired, onEnd })
  const onUnwritten = (why: string) => announcer.tell({ type: 'journal_error', why })
  const runtime = new RuntimeFaults({
    armory: run.armory,
    registry,
    refusal: () => refusal(1),
    maxTtl: () => config().maxTtl,
    dice: () => createDice(config().seed),
    isPlanned: (name) => config().faults.some((fault) => fault.name === name),
    onBegin: () => run.begin(config().lease),
    onChange: (type, by, detail) => announcer.tell({ type, by, detail }),
  })
  const attachments = new Attachments({ clock, journal, kill, onError: onUnwritten })
  return { journal, killSwitch: kill, announcer, engine, run, attachments, runtime }
}
