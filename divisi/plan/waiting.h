// How long requests wait for a pool of servers. Arrivals are Poisson, service takes a fixed time (a
// stage's time depends on lengths, which a class of requests shares): M/D/k.
//
// For one server the mean is exact (Pollaczek and Khinchine):
//   W = rho / (2 mu (1 - rho))
// For k servers it is half of M/M/k's (Erlang C), corrected as Cosmetatos does:
//   W = W_MMk / 2 * (1 + (1 - rho) (k - 1) (sqrt(4 + 5 k) - 2) / (16 rho k))
// Source: G. Cosmetatos, "Some approximate equilibrium results for the multi-server queue M/G/r",
// Operational Research Quarterly 27, 1976; within 2 % of exact values where waiting matters.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

// k like servers, or unlike ones taken as like: of the same total rate.
struct ServerPool {
  int servers = 1;
  PerSecond rate;  // Of all together.
};

// Fraction of the pool's time that arrivals take.
double Utilisation(PerSecond arrivals, const ServerPool& pool);

// Probability that an arrival waits in M/M/k. 1 where the pool is full.
double ErlangC(PerSecond arrivals, const ServerPool& pool);
// Mean wait in M/M/k: exponential service. Infinite where arrivals are not below the rate.
Seconds WaitOfRandomService(PerSecond arrivals, const ServerPool& pool);
// Mean wait in M/D/k, as above.
Seconds WaitOfFixedService(PerSecond arrivals, const ServerPool& pool);

// Probability of waiting longer than `time`, where a fraction `waiting` of the arrivals waits at
// all and the mean over all is `mean`: an exponential tail of the same mean, waiting * exp(-time *
// waiting / mean). An approximation: tails of fixed service are shorter.
double WaitsLonger(Seconds time, double waiting, Seconds mean);

}  // namespace divisi
