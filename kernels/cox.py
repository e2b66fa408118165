"""The partial likelihood of proportional hazards, whose rows depend on all rows still at risk (Cox 1972), ties after Breslow.

    loss = Σ over events i of w_i·(ln S(t_i) − margin_i),    S(t) = Σ w_j·e^margin_j over rows j with t_j >= t

Weights count rows, in S as well; XGBoost leaves them out of S. One thread adds in the order of time, on the host, so that float64
sums are the same for any device and any number of threads and workers.

g_j = e^margin_j·r_j − [event],  h_j = e^margin_j·(r_j − w_j·e^margin_j·s_j),  r_j = Σ w_i/S(t_i), s_j = Σ w_i/S(t_i)² over events
with t_i <= t_j
"""

from numba import float32

from gpuboost.kernels.gradients import cut, not_negative
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import exp_double, log_double


@kernel
def sum_at_risk(order, label, weight, hazard, at_risk):
    """at_risk : float64 (n_rows,), OUT, by place in ``order``: S at the time of that row.

    order : intp (n_rows,), rows by rising |label|. label : float32 (n_rows,), times, those without an event negative.
    weight : float32 (n_rows,). hazard : float64 (n_rows,).
    """
    total, last = 0.0, order.size - 1
    for place in range(order.size - 1, -1, -1):
        row = order[place]
        total += float(weight[row]) * hazard[row]
        if place == 0 or abs(label[order[place - 1]]) != abs(label[row]):
            at_risk[place : last + 1] = total
            last = place - 1


@kernel
def cox_gradients(order, label, weight, hazard, at_risk, grad, hess):
    """grad, hess : float32 (n_rows,), OUT, times the weight. Arguments as above."""
    first, r, s = 0, 0.0, 0.0
    for place in range(order.size):
        row = order[place]
        if label[row] > 0 and weight[row] > 0:
            r += float(weight[row]) / at_risk[place]
            s += float(weight[row]) / at_risk[place] / at_risk[place]
        if place == order.size - 1 or abs(label[order[place + 1]]) != abs(label[row]):
            for tied in range(first, place + 1):
                row = order[tied]
                own = hazard[row]
                g = own * r - (1.0 if label[row] > 0 else 0.0)
                h = own * (r - float(weight[row]) * own * s)
                grad[row] = float32(cut(float32(g)) * weight[row])
                hess[row] = float32(cut(not_negative(float32(h))) * weight[row])
            first = place + 1


@kernel
def cox_loss(order, label, weight, hazard, at_risk):
    """The loss divided by the weight of the events; NaN without events."""
    loss, events = 0.0, 0.0
    for place in range(order.size):
        row = order[place]
        if label[row] > 0 and weight[row] > 0:
            loss += float(weight[row]) * (log_double(at_risk[place]) - log_double(hazard[row]))
            events += float(weight[row])
    return loss / events


@kernel
def hazards(margin, largest, hazard):
    """e^(margin − largest) of float32 margins, in float64."""
    for row in range(margin.size):
        hazard[row] = exp_double(float(margin[row]) - float(largest))
