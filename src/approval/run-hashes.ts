import { randomBytes } from 'node:crypto'
import type { Survey } from '../experiments/guarded/guarded.ts'
import type { Spec } from '../experiments/guarded/spec.ts'
import { changedBetween, type RunHashes } from './approval.ts'
import { digestOf } from './digest.ts'
import type { HitTool } from './envelope.ts'
import { type Refusal, refusal } from './refusal.ts'

export interface RunHasherParts {
  readonly hitToolsOf: (survey: Pick<Survey, 'targets'>, spec: Spec) => readonly HitTool[]
  /** Returns a hash of the environment state: policies, target servers and chaos settings. */
  readonly groundOf: (spec: Spec) => string
  /** Returns the spec without secrets, to show and sign. */
  readonly withoutSecrets: (spec: Spec) => Spec
}

export interface HashedRun extends RunHashes {
  readonly hit: readonly HitTool[]
  /** Digest of the spec with all secrets, under a random key of this process. The digest reveals no secret. */
  readonly sealed: string
}

/** Computes the hashes of runs from the current state of the gateway. */
export class RunHasher {
  readonly #parts: RunHasherParts
  /** Key of `sealed`. */
  readonly #seal = randomBytes(32).toString('hex')

  constructor(parts: RunHasherParts) {
    this.#parts = parts
  }

  of(spec: Spec, firstStage: number, survey: Pick<Survey, 'targets'>): HashedRun {
    const hit = this.hitToolsOf(survey, spec)
    const sealed = digestOf([this.#seal, spec])
    return {
      planHash: digestOf({ spec: this.#parts.withoutSecrets(spec), firstStage, sealed }),
      groundHash: digestOf(this.#parts.groundOf(spec)),
      targetsHash: digestOf(hit),
      hit,
      sealed,
    }
  }

  hitToolsOf(survey: Pick<Survey, 'targets'>, spec: Spec): readonly HitTool[] {
    return this.#parts.hitToolsOf(survey, spec)
  }

  /** Whether a signer is not shown all of a spec. */
  hidesPartOf(spec: Spec): boolean {
    return digestOf(this.#parts.withoutSecrets(spec)) !== digestOf(spec)
  }

  /** Returns a refusal if plan, ground or targets changed since the proposal; undefined otherwise. */
  changed(
    proposal: RunHashes & { readonly spec: Spec; readonly firstStage: number },
    survey: Pick<Survey, 'targets'>,
  ): Refusal | undefined {
    const changed = changedBetween(proposal, this.of(proposal.spec, proposal.firstStage, survey))
    if (changed.length === 0) return undefined
    return refusal(
      'plan_changed',
      `since the proposal, ${changed.join(' and ')} changed: propose the run again`,
      { see: 'propose_run' },
    )
  }
}
