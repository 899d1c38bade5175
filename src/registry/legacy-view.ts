import type { Message } from '../mesh/call.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import type { Catalog } from './catalog.ts'
import type { Discovery, DiscoveryOptions } from './discovery.ts'

type Hooks = Pick<DiscoveryOptions, 'onUp' | 'onDown' | 'onStale' | 'onReverted'>

export interface LegacyViewOptions {
  /** Creates the discovery for the legacy era. */
  readonly discovery: (hooks: Hooks) => Discovery
  /** Called when a catalog was fetched; undefined: the server does not speak the legacy era. */
  readonly onCatalog: (catalog: Catalog | undefined, initializeResult: Message | undefined) => void
  readonly onStale: () => void
  /** Ends the discovery's upstream sessions. */
  readonly onEnd: (discovery: Discovery) => void
}

/**
 * The catalog of a server in the legacy era, while the gateway itself speaks the modern era to the server. A server may
 * offer different entries per era, and the lists of a legacy client must match its later calls. The catalog is fetched
 * when first needed. A server without the legacy era has no legacy view.
 */
export class LegacyView {
  readonly #options: LegacyViewOptions
  #discovery: Discovery | undefined
  #settled: Promise<void> | undefined

  constructor(options: LegacyViewOptions) {
    this.#options = options
  }

  /** Starts the discovery if needed. Resolves after the first round, and after any pending `look` for all lists. */
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

  /** Starts a round now; `all`: fetches all lists; `greetsAnew`: see `Discovery.refresh`. */
  look({ all = false, greetsAnew = false } = {}): void {
    if (all) this.#discovery?.refresh({ greetsAnew })
    else this.#discovery?.run()
  }

  /** Ends the discovery and its upstream sessions. */
  stop(): void {
    if (this.#discovery === undefined) return
    this.#discovery.stop()
    this.#options.onEnd(this.#discovery)
  }

  /** Drops the view until the next `begin`. */
  #forget(): void {
    this.stop()
    this.#discovery = undefined
    this.#settled = undefined
    this.#options.onCatalog(undefined, undefined)
  }
}
