import { ClassicLevel } from 'classic-level'
import type { Change, Level } from '../../src/gateway/records-level.ts'

/** A LevelDB in the test's own process, so that a test can make it fail. */
export class OwnLevel implements Level {
  readonly #folder: string
  readonly #level: ClassicLevel

  constructor(folder: string) {
    this.#folder = folder
    this.#level = new ClassicLevel(folder)
  }

  open(): Promise<void> {
    return this.#level.open()
  }

  repair(): Promise<void> {
    return ClassicLevel.repair(this.#folder)
  }

  batch(changes: readonly Change[]): Promise<void> {
    return this.#level.batch([...changes])
  }

  async *entries(): AsyncIterable<[string, string][]> {
    yield await this.#level.iterator().all()
  }

  close(): Promise<void> {
    return this.#level.close()
  }
}
