import type { Message } from '../mesh/call.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import type { Catalog } from './catalog.ts'
import type { Discovery, DiscoveryOptions } from './discovery.ts'

type Hooks = Pick<DiscoveryOptions, 'onUp' | 'onDown' | 'onStale' | 'onReverted'>

export interface LegacyViewOptions {
  /** Makes the discovery that asks in the legacy era. */
  readonly discovery: (hooks: Hooks) => Discovery
  /** It was fetched, or found to be no other than that of the modern era: then undefined. */
  readonly onCatalog: (catalog: Catalog | undefined, initializeResult: Message | undefined) => void
  readonly onStale: () => void
  /** Ends the discovery's upstream sessions. */
  readonly onEnd: (discovery: Discovery) => void
}

/**
 * The offers of a server of both eras in the legacy era, where the gateway itself speaks the modern era to the server.
 * A server is free to offer other things in each era, and lists of all servers have to be true of the calls that
 * follow. The first client that needs the view has it fetched; a server that turns out not to speak the legacy era has
 * none.
 */
export class LegacyView {
  readonly #options: LegacyViewOptions
  #discovery: Discovery | undefined
  #settled: Promise<void> | undefined

  constructor(options: LegacyViewOptions) {
    this.#options = options
  }

  /** Begins, unless it has. Resolves once the first round is over, and no `look` for all of it is under way. */
  begin(): Promise<void> {
    const settled = (this.#settled ??= new Promise((settle) => {
      const { discovery, onCatalog, onStale } = this.#options
      let greeted: Message | undefined
      this.#discovery = discovery({
        onUp: (catalog, initializeResult) => {
          greeted = initializeResult
          const isBridged = initializeResult.value.protocolVersion === MODERN_VERSION
          if (isBridged) this.#forget()
          else onCatalog(catalog, initializeResult)
          settle()
        },
        onDown: () => settle(),
        onStale,
        onReverted: (catalog) => onCatalog(catalog, greeted),
      })
      this.#discovery.run()
    }))
    return settled.then(() => this.#discovery?.refreshed)
  }

  /** Looks again now; `all`: fetches all lists; `greetsAnew`: see `Discovery.refresh`. */
  look({ all = false, greetsAnew = false } = {}): void {
    if (all) this.#discovery?.refresh({ greetsAnew })
    else this.#discovery?.run()
  }

  /** Nobody looks any more. */
  stop(): void {
    if (this.#discovery === undefined) return
    this.#discovery.stop()
    this.#options.onEnd(this.#discovery)
  }

  /** There is none, until somebody asks for it again. */
  #forget(): void {
    this.stop()
    this.#discovery = undefined
    this.#settled = undefined
    this.#options.onCatalog(undefined, undefined)
  }
}
